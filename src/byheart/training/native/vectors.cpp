// Multi-head attention over contexts of vectors with one value a head: what stands between the large
// products, which are the caller's. Of every example b with the context X (n x d):
//
//   l_h = X m_h + p_h,  v_h = X w_h + u_h,  a_h = softmax(l_h),  F_h = a_h . v_h
//
// with m, p the example's own and w, u the model's. Rows of l, v are padded to a multiple of 8.
#include "common.h"

typedef float V8 __attribute__((vector_size(32)));

static inline V8 load(const float* p) {
  V8 v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
static inline void store(float* p, V8 v) { std::memcpy(p, &v, sizeof v); }
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

// out (R x 8C) = start + A (R x K) B (K x 8C); `start` may be null, and may be `out`.
template <int R, int C>
static inline void tile(idx K, const float* A, idx lda, const float* B, idx ldb, const float* start,
                        idx lds, float* out, idx ldo) {
  V8 sum[R][C];
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++) sum[r][c] = start ? load(start + r * lds + 8 * c) : V8{};
  for (idx k = 0; k < K; k++) {
    V8 row[C];
    for (int c = 0; c < C; c++) row[c] = load(B + k * ldb + 8 * c);
    for (int r = 0; r < R; r++) {
      const V8 x = all(A[r * lda + k]);
      for (int c = 0; c < C; c++) sum[r][c] += x * row[c];
    }
  }
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++) store(out + r * ldo + 8 * c, sum[r][c]);
}

template <int C>
static inline void rows(idx m, idx K, const float* A, idx lda, const float* B, idx ldb,
                        const float* start, idx lds, float* out, idx ldo) {
  constexpr int R = 24 / C > 8 ? 8 : 24 / C;  // sums stay in registers
  idx r = 0;
  for (; r + R <= m; r += R)
    tile<R, C>(K, A + r * lda, lda, B, ldb, start ? start + r * lds : nullptr, lds, out + r * ldo, ldo);
  for (; r < m; r++)
    tile<1, C>(K, A + r * lda, lda, B, ldb, start ? start + r * lds : nullptr, lds, out + r * ldo, ldo);
}

// out (m x w) = start + A (m x K) B (K x w), w a multiple of 8.
static void product(idx m, idx w, idx K, const float* A, idx lda, const float* B, idx ldb,
                    const float* start, idx lds, float* out, idx ldo) {
  for (idx c = 0; c < w;) {
    const float* s = start ? start + c : nullptr;
    if (w - c >= 32) {
      rows<4>(m, K, A, lda, B + c, ldb, s, lds, out + c, ldo);
      c += 32;
    } else if (w - c >= 16) {
      rows<2>(m, K, A, lda, B + c, ldb, s, lds, out + c, ldo);
      c += 16;
    } else {
      rows<1>(m, K, A, lda, B + c, ldb, s, lds, out + c, ldo);
      c += 8;
    }
  }
}

// The next context comes from memory while this one is worked on.
static inline void fetch(const float* X, idx numbers) {
  for (idx i = 0; i < numbers; i += 16) __builtin_prefetch(X + i);
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

// F (B x H) of the examples `chosen` of `contexts` (T x n x d). `both` (B x H x (d + w)) has m and p,
// `model` (H x (d + w)) has w and u; a, v (B x H x w) are kept for `vectors_back` unless null;
// `work` has room for (d + 2 H) w numbers.
API void vectors_forward(idx B, idx H, idx n, idx d, idx w, const float* contexts, const idx* chosen,
                         const float* both, const float* model, float* a, float* v, float* F,
                         float* work) {
  FlushDenormals flush;
  float* const Xt = work;
  const idx wide = d + w;
  for (idx b = 0; b < B; b++) {
    const float* own = both + b * H * wide;
    float* l = a ? a + b * H * w : work + d * w;
    float* y = v ? v + b * H * w : work + (d + H) * w;
    transpose(contexts + chosen[b] * n * d, n, d, w, Xt);
    if (b + 1 < B) fetch(contexts + chosen[b + 1] * n * d, n * d);
    product(H, w, d, own, wide, Xt, w, own + d, wide, l, w);
    product(H, w, d, model, wide, Xt, w, model + d, wide, y, w);
    for (idx h = 0; h < H; h++) {
      float* lh = l + h * w;
      for (idx i = n; i < w; i++) lh[i] = -1e30f;
      V8 top = load(lh);
      for (idx i = 8; i < w; i += 8) top = larger(load(lh + i), top);
      top = top_of(top);
      for (idx i = 0; i < w; i += 8) store(lh + i, load(lh + i) - top);
    }
    for (idx i = 0; i < H * w; i++) l[i] = exp_clamped(l[i]);
    for (idx h = 0; h < H; h++) {
      float *lh = l + h * w, *yh = y + h * w;
      V8 z{}, f{};
      for (idx i = 0; i < w; i += 8) {
        const V8 x = load(lh + i);
        z += x, f += x * load(yh + i);
      }
      const V8 share = 1.f / sum_of(z);
      for (idx i = 0; i < w; i += 8) store(lh + i, load(lh + i) * share);
      F[b * H + h] = (sum_of(f) * share)[0];
    }
  }
}

// From dF (B x H): the gradients of `both` into `both`, those of `model` added to `d_model`. a and v
// are overwritten.
API void vectors_back(idx B, idx H, idx n, idx d, idx w, const float* contexts, const idx* chosen,
                      float* both, float* d_model, float* a, float* v, const float* F,
                      const float* dF) {
  FlushDenormals flush;
  const idx wide = d + w;
  for (idx b = 0; b < B; b++) {
    const float* X = contexts + chosen[b] * n * d;
    float *own = both + b * H * wide, *ab = a + b * H * w, *vb = v + b * H * w;
    for (idx h = 0; h < H; h++) {
      const float g = dF[b * H + h], f = F[b * H + h];
      float *dv = ab + h * w, *dl = vb + h * w;
      float *p = own + h * wide + d, *u = d_model + h * wide + d;
      for (idx i = 0; i < w; i += 8) {
        const V8 y = load(dv + i) * all(g), x = y * (load(dl + i) - all(f));
        store(dv + i, y), store(dl + i, x), store(p + i, x);
        store(u + i, load(u + i) + y);
      }
    }
    product(H, d, n, vb, w, X, d, nullptr, 0, own, wide);
    if (b + 1 < B) fetch(contexts + chosen[b + 1] * n * d, n * d);
    product(H, d, n, ab, w, X, d, d_model, wide, d_model, wide);
  }
}

// One context for all examples, embedded: C (n x d). Of a head, with s the scale of the logits:
//
//   keys = C W_K,  P = s keys W_Q^T,  l = P x^T,  v = C W_V,  a = softmax over the n rows of l,  F = v a
//
// `shared_fold` makes keys (H x n x d_h), P (H x n x d) and v (H x n) from the weights alone.
API void shared_fold(idx H, idx n, idx d, idx d_h, float scale, const float* C, const float* Q,
                     const float* K, const float* V, float* keys, float* P, float* v) {
  for (idx h = 0; h < H; h++) {
    gemm(false, false, n, d_h, d, 1, C, d, K + h * d * d_h, d_h, 0, keys + h * n * d_h, d_h);
    gemm(false, true, n, d, d_h, scale, keys + h * n * d_h, d_h, Q + h * d * d_h, d_h, 0,
         P + h * n * d, d);
  }
  gemm(false, true, H, n, d, 1, V, d, C, d, 0, v, n);
}

constexpr idx COLUMNS = 64;  // examples whose maxima and sums are held at once

// F (H x B) of the embedded queries x (B x d), and z (H x B), the sums of exponentials. The
// exponentials themselves, n x B a head, are kept in `a` one head after the other, or over each other.
API void shared_forward(idx B, idx H, idx n, idx d, idx keep, const float* x, const float* P,
                        const float* v, float* a, float* z, float* F) {
  FlushDenormals flush;
  for (idx h = 0; h < H; h++) {
    float* const l = a + keep * h * n * B;
    const float* const vh = v + h * n;
    gemm(false, true, n, B, d, 1, P + h * n * d, d, x, d, 0, l, B);
    for (idx first = 0; first < B; first += COLUMNS) {
      const idx w = B - first < COLUMNS ? B - first : COLUMNS;
      float top[COLUMNS], sum[COLUMNS], mean[COLUMNS];
      for (idx c = 0; c < w; c++) top[c] = l[first + c], sum[c] = mean[c] = 0;
      for (idx i = 1; i < n; i++) {
        const float* const row = l + i * B + first;
        for (idx c = 0; c < w; c++) top[c] = row[c] > top[c] ? row[c] : top[c];
      }
      for (idx i = 0; i < n; i++) {
        float* const row = l + i * B + first;
        const float value = vh[i];
        for (idx c = 0; c < w; c++) {
          const float e = exp_clamped(row[c] - top[c]);
          row[c] = e, sum[c] += e, mean[c] += value * e;
        }
      }
      for (idx c = 0; c < w; c++) {
        z[h * B + first + c] = sum[c];
        F[h * B + first + c] = mean[c] / sum[c];
      }
    }
  }
}

// From dF (H x B): the gradients of the weights, added to gQ, gK, gV, and dC of the embedded context.
// x = q W_E + b of the raw queries q, where there is an embedding: with dl = a dF (v - F) and G = dl q,
//
//   dP = G W_E + (dl 1) b^T,    dW_E = G^T P,    db = P^T (dl 1)
//
// so that the gradient of x, which is as large as that of P is to compute, is never needed. Without an
// embedding W_E is null and q is x. `a` is overwritten; `work` has room for n (2 d + d_h + 2) numbers.
API void shared_back(idx B, idx H, idx n, idx d, idx d_h, float scale, const float* q,
                     const float* W_E, const float* b, const float* C, const float* Q,
                     const float* K, const float* V, const float* keys, const float* P,
                     const float* v, float* a, float* z, const float* F, const float* dF, float* gQ,
                     float* gK, float* gV, float* gW_E, float* gb, float* dC, float* work) {
  FlushDenormals flush;
  float *const G = work, *const dP = G + n * d, *const dk = dP + n * d;
  float *const dv = dk + n * d_h, *const ones = dv + n;  // `ones`: dl 1
  for (idx h = 0; h < H; h++) {
    float* const l = a + h * n * B;
    float* const share = z + h * B;
    const float *const f = F + h * B, *const df = dF + h * B;
    for (idx c = 0; c < B; c++) share[c] = df[c] / share[c];
    for (idx i = 0; i < n; i++) {
      float* const row = l + i * B;
      const float value = v[h * n + i];
      float weight = 0, sum = 0;
      for (idx c = 0; c < B; c++) {
        const float y = row[c] * share[c], x = y * (value - f[c]);
        row[c] = x, weight += y, sum += x;
      }
      dv[i] = weight, ones[i] = sum;
    }
    const float *const Ph = P + h * n * d, *const kh = keys + h * n * d_h;
    const float* back = G;
    gemm(false, false, n, d, B, 1, l, B, q, d, 0, G, d);
    if (W_E) {
      for (idx i = 0; i < n; i++)
        for (idx j = 0; j < d; j++) dP[i * d + j] = ones[i] * b[j];
      gemm(false, false, n, d, d, 1, G, d, W_E, d, 1, dP, d);
      gemm(true, false, d, d, n, 1, G, d, Ph, d, 1, gW_E, d);
      gemm(false, false, 1, d, n, 1, ones, n, Ph, d, 1, gb, d);
      back = dP;
    }
    gemm(true, false, d, d_h, n, scale, back, d, kh, d_h, 1, gQ + h * d * d_h, d_h);
    gemm(false, false, n, d_h, d, scale, back, d, Q + h * d * d_h, d_h, 0, dk, d_h);
    gemm(true, false, d, d_h, n, 1, C, d, dk, d_h, 1, gK + h * d * d_h, d_h);
    gemm(false, false, 1, d, n, 1, dv, n, C, d, 1, gV + h * d, d);
    if (W_E) {
      gemm(false, true, n, d, d_h, 1, dk, d_h, K + h * d * d_h, d_h, 1, dC, d);
      for (idx i = 0; i < n; i++)
        for (idx j = 0; j < d; j++) dC[i * d + j] += dv[i] * V[h * d + j];
    }
  }
}
