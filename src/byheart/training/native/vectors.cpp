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
