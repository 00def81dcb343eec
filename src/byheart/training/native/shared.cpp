// Multi-head attention with one value a head, one context for all examples.
#include "products.h"

// One context for all examples, embedded: C (n x d). Of a head, with s the scale of the logits:
//
//   keys = C W_K,  P = s keys W_Q^T,  l = P x^T,  v = C W_V,  a = softmax over the n rows of l,  F = v a
//
// d is a multiple of 8; widths d_h are brought to w, the next one, with zeros: such copies, transposed
// ones too, are cheaper than products that lie badly.
static inline idx padded(idx d_h) { return (d_h + 7) / 8 * 8; }

// to (d x w) = s W (d x d_h), zeros beyond d_h.
static void pad(const float* W, idx d, idx d_h, idx w, float s, float* to) {
  for (idx i = 0; i < d; i++) {
    for (idx j = 0; j < d_h; j++) to[i * w + j] = s * W[i * d_h + j];
    for (idx j = d_h; j < w; j++) to[i * w + j] = 0;
  }
}

// W (d x d_h) += s from (d x w).
static void add(const float* from, idx d, idx d_h, idx w, float s, float* W) {
  for (idx i = 0; i < d; i++)
    for (idx j = 0; j < d_h; j++) W[i * d_h + j] += s * from[i * w + j];
}

// Numbers of `work` that `shared_fold` and `shared_back` need.
API idx shared_room(idx n, idx d, idx d_h) {
  const idx w = padded(d_h);
  return 2 * d * w + n * (2 * d + w + 2);
}

// From the weights alone: keys (H x n x w), P (H x n x d) and v (H x n).
API void shared_fold(idx H, idx n, idx d, idx d_h, float scale, const float* C, const float* Q,
                     const float* K, const float* V, float* keys, float* P, float* v, float* work) {
  const idx w = padded(d_h);
  float *const flat = work, *const turned = work + d * w;
  for (idx h = 0; h < H; h++) {
    float* const own = keys + h * n * w;
    pad(K + h * d * d_h, d, d_h, w, 1, flat);
    product(n, w, d, {C, d}, {flat, w}, NOTHING, own, w);
    pad(Q + h * d * d_h, d, d_h, w, scale, flat);
    transpose(flat, d, w, d, turned);
    product(n, d, d_h, {own, w}, {turned, d}, NOTHING, P + h * n * d, d);
    for (idx i = 0; i < n; i++) {
      float sum = 0;
      for (idx j = 0; j < d; j++) sum += C[i * d + j] * V[h * d + j];
      v[h * n + i] = sum;
    }
  }
}

constexpr idx PANEL = 64;  // examples that are worked on at once: their logits stay in the cache

// F (H x B) of the embedded queries x (B x d), and z (H x B), the sums of exponentials. The
// exponentials themselves, panels of n x 64 a head, are kept in `a` one head after the other, or over
// each other. `turned` has room for the panels of x^T, each d x 64.
API void shared_forward(idx B, idx H, idx n, idx d, idx keep, const float* x, const float* P,
                        const float* v, float* a, float* z, float* F, float* turned) {
  FlushDenormals flush;
  const idx panels = (B + PANEL - 1) / PANEL;
  for (idx p = 0; p < panels; p++) {
    const idx left = B - p * PANEL;
    transpose(x + p * PANEL * d, left < PANEL ? left : PANEL, d, PANEL, turned + p * PANEL * d);
  }
  for (idx h = 0; h < H; h++) {
    const float* const vh = v + h * n;
    for (idx p = 0; p < panels; p++) {
      float* const l = a + keep * (h * panels + p) * n * PANEL;
      product(n, PANEL, d, {P + h * n * d, d}, {turned + p * PANEL * d, PANEL}, NOTHING, l, PANEL);
      float top[PANEL], sum[PANEL], mean[PANEL];
      for (idx c = 0; c < PANEL; c++) top[c] = l[c], sum[c] = mean[c] = 0;
      for (idx i = 1; i < n; i++) {
        const float* const row = l + i * PANEL;
        for (idx c = 0; c < PANEL; c++) top[c] = row[c] > top[c] ? row[c] : top[c];
      }
      for (idx i = 0; i < n; i++) {
        float* const row = l + i * PANEL;
        const float value = vh[i];
        for (idx c = 0; c < PANEL; c++) {
          const float e = exp_clamped(row[c] - top[c]);
          row[c] = e, sum[c] += e, mean[c] += value * e;
        }
      }
      const idx first = h * B + p * PANEL, left = B - p * PANEL;
      for (idx c = 0; c < (left < PANEL ? left : PANEL); c++)
        z[first + c] = sum[c], F[first + c] = mean[c] / sum[c];
    }
  }
}

// From dF (H x B): the gradients of the weights, added to gQ, gK, gV, and dC of the embedded context.
// x = q W_E + b of the raw queries q, where there is an embedding: with dl = a dF (v - F) and G = dl q,
//
//   dP = G W_E + (dl 1) b^T,    dW_E = G^T P,    db = P^T (dl 1)
//
// so that the gradient of x, which is as large as that of P is to compute, is never needed. Without an
// embedding W_E is null and q is x. `a` is overwritten.
API void shared_back(idx B, idx H, idx n, idx d, idx d_h, float scale, const float* q,
                     const float* W_E, const float* b, const float* C, const float* Q,
                     const float* K, const float* V, const float* keys, const float* P,
                     const float* v, float* a, const float* z, const float* F, const float* dF,
                     float* gQ, float* gK, float* gV, float* gW_E, float* gb, float* dC, float* work) {
  FlushDenormals flush;
  const idx w = padded(d_h), panels = (B + PANEL - 1) / PANEL;
  float *const flat = work, *const turned = flat + d * w, *const G = turned + d * w;
  float *const dP = G + n * d, *const dk = dP + n * d;
  float *const dv = dk + n * w, *const ones = dv + n;  // `ones`: dl 1
  for (idx h = 0; h < H; h++) {
    for (idx i = 0; i < n; i++) dv[i] = ones[i] = 0;
    for (idx p = 0; p < panels; p++) {
      float* const l = a + (h * panels + p) * n * PANEL;
      const idx first = h * B + p * PANEL, left = B - p * PANEL, here = left < PANEL ? left : PANEL;
      float share[PANEL] = {}, f[PANEL] = {};
      for (idx c = 0; c < here; c++) share[c] = dF[first + c] / z[first + c], f[c] = F[first + c];
      for (idx i = 0; i < n; i++) {
        float* const row = l + i * PANEL;
        const float value = v[h * n + i];
        float weight = 0, sum = 0;
        for (idx c = 0; c < PANEL; c++) {
          const float y = row[c] * share[c], x = y * (value - f[c]);
          row[c] = x, weight += y, sum += x;
        }
        dv[i] += weight, ones[i] += sum;
      }
      const Matrix start = p ? Matrix{G, d} : NOTHING;
      product(n, d, here, {l, PANEL}, {q + p * PANEL * d, d}, start, G, d);
    }
    const float *const Ph = P + h * n * d, *const kh = keys + h * n * w;
    const float* back = G;
    if (W_E) {
      for (idx i = 0; i < n; i++)
        for (idx j = 0; j < d; j++) dP[i * d + j] = ones[i] * b[j];
      product(n, d, d, {G, d}, {W_E, d}, {dP, d}, dP, d);
      product(d, d, n, {G, 1, d}, {Ph, d}, {gW_E, d}, gW_E, d);
      product(1, d, n, {ones, n}, {Ph, d}, {gb, d}, gb, d);
      back = dP;
    }
    product(d, w, n, {back, 1, d}, {kh, w}, NOTHING, flat, w);
    add(flat, d, d_h, w, scale, gQ + h * d * d_h);
    pad(Q + h * d * d_h, d, d_h, w, scale, flat);
    product(n, w, d, {back, d}, {flat, w}, NOTHING, dk, w);
    product(d, w, n, {C, 1, d}, {dk, w}, NOTHING, flat, w);
    add(flat, d, d_h, w, 1, gK + h * d * d_h);
    product(1, d, n, {dv, n}, {C, d}, {gV + h * d, d}, gV + h * d, d);
    if (W_E) {
      pad(K + h * d * d_h, d, d_h, w, 1, flat);
      transpose(flat, d, w, d, turned);
      product(n, d, d_h, {dk, w}, {turned, d}, {dC, d}, dC, d);
      for (idx i = 0; i < n; i++)
        for (idx j = 0; j < d; j++) dC[i * d + j] += dv[i] * V[h * d + j];
    }
  }
}
