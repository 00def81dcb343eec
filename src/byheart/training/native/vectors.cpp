// Multi-head attention with one value a head, a context for each example. Of every example b with the
// context X (n x d) and the embedded query x (d):
//
//   l_h = X m_h + p_h,  v_h = X w_h + u_h,  a_h = softmax(l_h),  F_h = a_h . v_h,  (m_h, p_h) = x W_h
//
// W (H x d x (d + w)) and (w, u) are the model's. Rows of l, v are padded to a multiple of 8, to w.
// (m, p) of all examples would not fit into the cache: they live for `block` examples at a time.
#include <algorithm>

#include "products.h"

// The next context comes from memory while this one is worked on.
static inline void fetch(const float* X, idx numbers) {
  for (idx i = 0; i < numbers; i += 16) __builtin_prefetch(X + i);
}

// F (B x H) of the examples `chosen` of `contexts` (T x n x d). `model` (H x (d + w)) has w and u;
// a, v (B x H x w) are kept for `vectors_back` unless null; `work` has room for
// block H (d + w) + (d + 2 H) w numbers.
API void vectors_forward(idx B, idx block, idx H, idx n, idx d, idx w, const float* contexts,
                         const idx* chosen, const float* x, const float* W, const float* model,
                         float* a, float* v, float* F, float* work) {
  FlushDenormals flush;
  const idx wide = d + w;
  float *const both = work, *const Xt = both + block * H * wide, *const rest = Xt + d * w;
  for (idx b = 0; b < B; b++) {
    const idx i = b % block;
    if (i == 0)
      for (idx h = 0; h < H; h++)
        product(std::min(block, B - b), wide, d, {x + b * d, d}, {W + h * d * wide, wide}, NOTHING,
                both + h * wide, H * wide);
    const float* own = both + i * H * wide;
    float* l = a ? a + b * H * w : rest;
    float* y = v ? v + b * H * w : rest + H * w;
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

// From dF (B x H): the gradients of W into `W`, those of `model` added to `d_model`. Embedded queries
// are x = E I, E (B x e) and I (e x d), whose gradient is added to `dI`; without I they are E. All comes
// from Y_h = E^T (dm_h, dp_h) over the batch, without dx. a and v are overwritten; `work` has room for
// block H (d + w) + d (d + w) numbers, Y (H x e x (d + w)) is W itself without I.
API void vectors_back(idx B, idx block, idx H, idx n, idx d, idx w, const float* contexts,
                      const idx* chosen, idx e, const float* E, const float* I, float* dI, float* W,
                      float* Y, float* d_model, float* a, float* v, const float* F, const float* dF,
                      float* work) {
  FlushDenormals flush;
  const idx wide = d + w;
  float *const both = work, *const Wt = both + block * H * wide;
  for (idx b = 0; b < B; b++) {
    const idx i = b % block, first = b - i;
    const float* X = contexts + chosen[b] * n * d;
    float *own = both + i * H * wide, *ab = a + b * H * w, *vb = v + b * H * w;
    for (idx h = 0; h < H; h++) {
      const float g = dF[b * H + h], f = F[b * H + h];
      float *dv = ab + h * w, *dl = vb + h * w;
      float *p = own + h * wide + d, *u = d_model + h * wide + d;
      for (idx j = 0; j < w; j += 8) {
        const V8 y = load(dv + j) * all(g), x = y * (load(dl + j) - all(f));
        store(dv + j, y), store(dl + j, x), store(p + j, x);
        store(u + j, load(u + j) + y);
      }
    }
    product(H, d, n, {vb, w}, {X, d}, NOTHING, own, wide);
    if (b + 1 < B) fetch(contexts + chosen[b + 1] * n * d, n * d);
    product(H, d, n, {ab, w}, {X, d}, {d_model, wide}, d_model, wide);
    if (i + 1 == block || b + 1 == B)
      for (idx h = 0; h < H; h++) {
        float* y = Y + h * e * wide;
        product(e, wide, i + 1, {E + first * e, 1, e}, {both + h * wide, H * wide},
                {first ? y : nullptr, wide}, y, wide);
      }
  }
  if (!I) return;
  for (idx h = 0; h < H; h++, W += d * wide, Y += e * wide) {
    transpose(W, d, wide, d, Wt);
    product(e, d, wide, {Y, wide}, {Wt, d}, {dI, d}, dI, d);
    product(d, wide, e, {I, 1, d}, {Y, wide}, NOTHING, W, wide);
  }
}
