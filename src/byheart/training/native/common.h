// What the kernels share: vectors, the product of matrices, and functions of one number.
#pragma once
#include <cstdint>
#include <cstring>

typedef int64_t idx;
#define API extern "C" __attribute__((visibility("default")))

// Fortran's SGEMM, given by the caller: column-major, so a row-major C = A B is C^T = B^T A^T.
typedef void (*sgemm_t)(const char*, const char*, const int*, const int*, const int*, const float*,
                        const float*, const int*, const float*, const int*, const float*, float*,
                        const int*);
static sgemm_t SGEMM = nullptr;
API void set_sgemm(void* pointer) { SGEMM = reinterpret_cast<sgemm_t>(pointer); }

// C (m x n) = alpha op(A) op(B) + beta C, all row-major, leading dimensions in numbers.
static inline void gemm(bool ta, bool tb, idx m, idx n, idx k, float alpha, const float* A, idx lda,
                        const float* B, idx ldb, float beta, float* C, idx ldc) {
  const int M = (int)m, N = (int)n, K = (int)k, a = (int)lda, b = (int)ldb, c = (int)ldc;
  SGEMM(tb ? "T" : "N", ta ? "T" : "N", &N, &M, &K, &alpha, B, &b, A, &a, &beta, C, &c);
}

// 2^x to 2 units in the last place, clamped to +-120: no denormals, no infinities.
static inline float exp2_clamped(float x) {
  x = x < -120.f ? -120.f : x > 120.f ? 120.f : x;
  const float n = __builtin_floorf(x + 0.5f), f = x - n;
  float p = 1.5403530e-4f;
  p = p * f + 1.3333558e-3f;
  p = p * f + 9.6181291e-3f;
  p = p * f + 5.5504109e-2f;
  p = p * f + 2.4022651e-1f;
  p = p * f + 6.9314718e-1f;
  p = p * f + 1.0f;
  int32_t bits = ((int32_t)n + 127) << 23;
  float scale;
  std::memcpy(&scale, &bits, sizeof scale);
  return p * scale;
}

static inline float exp_clamped(float x) { return exp2_clamped(1.44269504f * x); }
static inline float sigmoid(float x) { return 1.0f / (1.0f + exp_clamped(-x)); }

// Denormals become zeros while one of these lives; the caller's mode comes back with its end.
#if defined(__SSE__) || defined(__x86_64__)
#include <xmmintrin.h>
struct FlushDenormals {
  unsigned before = _mm_getcsr();
  FlushDenormals() { _mm_setcsr(before | 0x8040); }
  ~FlushDenormals() { _mm_setcsr(before); }
};
#else
struct FlushDenormals {};
#endif
