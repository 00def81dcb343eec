// Products of small matrices, in vectors of the compiler's. MKL has no 512-bit code for processors that
// are not Intel's, and the matrices here are small enough to lie in the cache while they are used.
#pragma once
#if defined(__AVX512F__) && !defined(__clang__)
#pragma GCC target("prefer-vector-width=512")  // gcc 12 has half as much for processors newer than it
#endif
#include "common.h"

typedef float V8 __attribute__((vector_size(32)));
#ifdef __AVX512F__
typedef float V __attribute__((vector_size(64)));
constexpr int SUMS = 24;  // vectors of sums that stay in registers
#else
typedef V8 V;
constexpr int SUMS = 12;
#endif
constexpr int WIDE = sizeof(V) / sizeof(float);

template <class T = V8>
static inline T load(const float* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <class T>
static inline void store(float* p, T v) {
  std::memcpy(p, &v, sizeof v);
}
static inline V8 all(float x) { return V8{x, x, x, x, x, x, x, x}; }
static inline V8 larger(V8 x, V8 y) { return x > y ? x : y; }

// The same number in all places: the sum, or the largest.
static inline V8 sum_of(V8 x) {
  x += __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3);
  x += __builtin_shufflevector(x, x, 2, 3, 0, 1, 6, 7, 4, 5);
  return x + __builtin_shufflevector(x, x, 1, 0, 3, 2, 5, 4, 7, 6);
}
static inline V8 top_of(V8 x) {
  x = larger(x, __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3));
  x = larger(x, __builtin_shufflevector(x, x, 2, 3, 0, 1, 6, 7, 4, 5));
  return larger(x, __builtin_shufflevector(x, x, 1, 0, 3, 2, 5, 4, 7, 6));
}

// A matrix as it lies: `row` and `column` numbers from one row, or column, to the next.
struct Matrix {
  const float* at;
  idx row, column = 1;
};
constexpr Matrix NOTHING{nullptr, 0};

// out = start + A B, R rows and C vectors of columns; `start` may be null, and may be `out`.
template <class T, int R, int C>
static inline void tile(idx K, Matrix A, Matrix B, Matrix start, float* out, idx step) {
  T sum[R][C];
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++)
      sum[r][c] = start.at ? load<T>(start.at + r * start.row + c * (idx)(sizeof(T) / 4)) : T{};
  for (idx k = 0; k < K; k++) {
    T row[C];
    for (int c = 0; c < C; c++) row[c] = load<T>(B.at + k * B.row + c * (idx)(sizeof(T) / 4));
    for (int r = 0; r < R; r++) {
      const float x = A.at[r * A.row + k * A.column];
      for (int c = 0; c < C; c++) sum[r][c] += x * row[c];
    }
  }
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++) store(out + r * step + c * (idx)(sizeof(T) / 4), sum[r][c]);
}

// The last rows, fewer than R of them, at once.
template <class T, int R, int C>
static inline void rest(idx m, idx K, Matrix A, Matrix B, Matrix start, float* out, idx step) {
  if constexpr (R > 0) {
    if (m == R) return tile<T, R, C>(K, A, B, start, out, step);
    rest<T, R - 1, C>(m, K, A, B, start, out, step);
  }
}

template <class T, int C>
static void rows(idx m, idx K, Matrix A, Matrix B, Matrix start, float* out, idx step) {
  constexpr int R = SUMS / C > 12 ? 12 : SUMS / C;
  idx r = 0;
  for (; r + R <= m; r += R) {
    tile<T, R, C>(K, A, B, start, out, step);
    A.at += R * A.row, out += R * step;
    if (start.at) start.at += R * start.row;
  }
  rest<T, R - 1, C>(m - r, K, A, B, start, out, step);
}

// out (m x w) = start + A (m x K) B (K x w), w a multiple of 8.
static void product(idx m, idx w, idx K, Matrix A, Matrix B, Matrix start, float* out, idx step) {
  for (idx c = 0; c < w;) {
    const Matrix b{B.at + c, B.row}, s{start.at ? start.at + c : nullptr, start.row};
    if (w - c >= 4 * WIDE) {
      rows<V, 4>(m, K, A, b, s, out + c, step);
      c += 4 * WIDE;
    } else if (w - c >= 2 * WIDE) {
      rows<V, 2>(m, K, A, b, s, out + c, step);
      c += 2 * WIDE;
    } else if (w - c >= WIDE) {
      rows<V, 1>(m, K, A, b, s, out + c, step);
      c += WIDE;
    } else {
      rows<V8, 1>(m, K, A, b, s, out + c, step);
      c += 8;
    }
  }
}

// to (d x w) = X^T, zeros beyond n.
static void transpose(const float* X, idx n, idx d, idx w, float* to) {
  idx i = 0;
  for (; i + 8 <= n; i += 8)
    for (idx j = 0; j < d; j += 8) {
      V8 r[8], s[8];
      for (int k = 0; k < 8; k++) r[k] = load(X + (i + k) * d + j);
      for (int k = 0; k < 4; k++) {  // pairs of rows, then pairs of pairs, then halves
        s[2 * k] = __builtin_shufflevector(r[2 * k], r[2 * k + 1], 0, 8, 2, 10, 4, 12, 6, 14);
        s[2 * k + 1] = __builtin_shufflevector(r[2 * k], r[2 * k + 1], 1, 9, 3, 11, 5, 13, 7, 15);
      }
      for (int h = 0; h < 2; h++)
        for (int k = 0; k < 2; k++) {
          const V8 a = s[4 * h + k], b = s[4 * h + 2 + k];
          r[4 * h + k] = __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13);
          r[4 * h + 2 + k] = __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
        }
      for (int k = 0; k < 4; k++) {
        store(to + (j + k) * w + i, __builtin_shufflevector(r[k], r[k + 4], 0, 1, 2, 3, 8, 9, 10, 11));
        store(to + (j + k + 4) * w + i,
              __builtin_shufflevector(r[k], r[k + 4], 4, 5, 6, 7, 12, 13, 14, 15));
      }
    }
  for (; i < w; i++)
    for (idx j = 0; j < d; j++) to[j * w + i] = i < n ? X[i * d + j] : 0.f;
}
