// Multi-head attention with one value a head, a context for each example: what stands between the large
// products, which are the caller's. Of every example b with the context X (n x d):
//
//   l_h = X m_h + p_h,  v_h = X w_h + u_h,  a_h = softmax(l_h),  F_h = a_h . v_h
//
// with m, p the example's own and w, u the model's. Rows of l, v are padded to a multiple of 8.
#include "products.h"

// The next context comes from memory while this one is worked on.
static inline void fetch(const float* X, idx numbers) {
  for (idx i = 0; i < numbers; i += 16) __builtin_prefetch(X + i);
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
    product(H, w, d, {own, wide}, {Xt, w}, {own + d, wide}, l, w);
    product(H, w, d, {model, wide}, {Xt, w}, {model + d, wide}, y, w);
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
    product(H, d, n, {vb, w}, {X, d}, NOTHING, own, wide);
    if (b + 1 < B) fetch(contexts + chosen[b + 1] * n * d, n * d);
    product(H, d, n, {ab, w}, {X, d}, {d_model, wide}, d_model, wide);
  }
}
