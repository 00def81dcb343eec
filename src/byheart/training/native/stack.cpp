// One step of a stack of Transformers over pairs of tokens (S = 2): loss and gradients by hand.
//
// The letters are the paper's. A model has N tokens, L layers of H heads, width d, and e, what its
// heads read and write: d, or d_h inside a bottleneck that all heads of a layer share (C, D). With
// G_h = s W_Q W_K^T, W_h = W_V W_O, A = sum_h W_h, and x_s the stream at position s = 0, 1:
//
//   c_s = C^T x_s + pos_s,  delta = c_0 - c_1,  a_h = sigmoid(c_1^T G_h delta)
//   o_0 = A^T c_0,          o_1 = A^T c_1 + sum_h a_h W_h^T delta
//   m_s = x_s + D^T o_s,    x_s <- m_s + W_out^T act(W_in^T m_s + b_in)
//
// (softmax over two keys is a sigmoid of the difference of their scores.) Position 0 reads only
// itself, so in every layer it is a table with a column for each token that stands there. Position 1
// goes through all layers, the loss and back in chunks of examples that stay in the cache; matrices
// are feature-major then (features x columns). Its attention has three forms:
//
//   layer 1       by tables, as both positions have nothing but a token: u = c_1^T G, t_s = c_s^T W
//                 and R = A^T c_1 of every token; then score_h = u_h[x_1] . delta and
//                 o_1 = R[x_1] + sum_h a_h (t_0[x_0] - t_1[x_1])_h from gathered rows
//   later, H >= e phi = c_1 (x) delta gives all scores as G phi; Y = W a, o_1 = A^T c_1 + delta^T Y
//   later, H < e  u_h = G_h^T c_1, score_h = u_h . delta; z_h = a_h delta + c_1, o_1 = sum_h W_h^T z_h
//
// With H >= e heads are the innermost axis of W_Q, W_K, W_V, W_O^T (e x rank x P, P = H rounded up
// to 8; heads that are not there have zeros, which stay zeros), else they are the first (H x e x rank).
// A name that begins with d is the gradient of what follows.
#include "common.h"
#include <cmath>
#include <initializer_list>

enum Name { W_E, W_POS, W_U, W_C, W_D, W_Q, W_K, W_V, W_O, W_IN, W_OUT, NAMES };
enum Positions { NO_POSITIONS, AT_INPUT, AT_ATTENTION };
enum Loss { CROSS_ENTROPY, AS_CODED, TOTAL_VARIATION };

struct Shape {
  idx N, d, e, H, qk_rank, d_h, w, layers;
  idx positions, skip, compressed, gelu, heads_last, loss;
  idx batch, chunk;               // examples of a step, at most, and of a chunk
  idx numbers;                    // of one model in the flat tensors
  idx at[NAMES], stride[NAMES];   // where a weight of layer 1 is there, and from layer to layer
  double scale;
};

struct Arena {  // hands out aligned pieces of one buffer; without a buffer it only counts
  float* base;
  idx used = 0;
  template <class T>
  void take(idx count, std::initializer_list<T**> pieces) {
    for (T** piece : pieces) {
      *piece = base ? reinterpret_cast<T*>(base + used) : nullptr;
      used += (count + 15) / 16 * 16;
    }
  }
};

static idx up(idx count, idx to) { return (count + to - 1) / to * to; }
static void zero(float* x, idx count) { std::memset(x, 0, count * sizeof(float)); }

// ---- functions of many numbers

static void sigmoids(float* a, idx count) {
  for (idx i = 0; i < count; i++) a[i] = sigmoid(a[i]);
}

// da <- da a (1 - a)
static void sigmoids_back(float* __restrict da, const float* __restrict a, idx count) {
  for (idx i = 0; i < count; i++) da[i] *= a[i] * (1.0f - a[i]);
}

// h <- act(h) and D <- act'(h). GELU is h F(h) with F the normal distribution, its derivative
// F(h) + h f(h); F to 1e-7 by Abramowitz and Stegun 7.1.26, which shares exp(-h^2 / 2) with f.
static void activate(bool gelu, float* __restrict h, float* __restrict D, idx count) {
  if (!gelu) {
    for (idx i = 0; i < count; i++) {
      D[i] = h[i] > 0 ? 1.0f : 0.0f;
      h[i] = h[i] < 0 ? 0.0f : h[i];
    }
    return;
  }
  for (idx i = 0; i < count; i++) {
    const float x = h[i], density = exp2_clamped(-0.72134752f * x * x);
    const float t = 1.0f / (1.0f + 0.23164190f * __builtin_fabsf(x));
    float p = 1.061405429f * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    const float tail = 0.5f * p * t * density, F = x < 0 ? tail : 1.0f - tail;
    h[i] = x * F;
    D[i] = F + x * density * 0.39894228f;
  }
}

// y (rows x n) += x (rows x n)
static void add(float* __restrict y, const float* __restrict x, idx count) {
  for (idx i = 0; i < count; i++) y[i] += x[i];
}

static void multiply(float* __restrict y, const float* __restrict x, idx count) {
  for (idx i = 0; i < count; i++) y[i] *= x[i];
}

// sums[i] += sum of row i
static void add_rows(float* sums, const float* x, idx rows, idx n) {
  for (idx i = 0; i < rows; i++) {
    float total = 0;
    for (idx b = 0; b < n; b++) total += x[i * n + b];
    sums[i] += total;
  }
}

// y (n x ld, its first `rows` columns) <- transpose of x (rows x n), and the other way round
static void to_rows(float* __restrict y, idx ld, const float* __restrict x, idx rows, idx n) {
  for (idx b = 0; b < n; b++)
    for (idx i = 0; i < rows; i++) y[b * ld + i] = x[i * n + b];
}

static void to_columns(float* __restrict y, const float* __restrict x, idx ld, idx rows, idx n) {
  for (idx i = 0; i < rows; i++)
    for (idx b = 0; b < n; b++) y[i * n + b] = x[b * ld + i];
}

static void add_to_columns(float* __restrict y, const float* __restrict x, idx ld, idx rows, idx n) {
  for (idx i = 0; i < rows; i++)
    for (idx b = 0; b < n; b++) y[i * n + b] += x[b * ld + i];
}

// y (rows x n) <- columns `at` of x (rows x N); and dx += dy there
static void gather(float* __restrict y, const float* __restrict x, const int32_t* at, idx rows,
                   idx N, idx n) {
  for (idx i = 0; i < rows; i++)
    for (idx b = 0; b < n; b++) y[i * n + b] = x[i * N + at[b]];
}

static void scatter(float* __restrict dx, const float* __restrict dy, const int32_t* at, idx rows,
                    idx N, idx n) {
  for (idx i = 0; i < rows; i++)
    for (idx b = 0; b < n; b++) dx[i * N + at[b]] += dy[i * n + b];
}

// ---- rows of eight: heads or features, whichever is longer, in K vectors (K = 0: any number)

typedef float v8 __attribute__((vector_size(32)));
static const int MOST = 64;  // vectors in a row
static inline v8 load(const float* p) {
  v8 v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
static inline void store(float* p, v8 v) { std::memcpy(p, &v, sizeof v); }
static inline void accumulate(float* p, v8 v) { store(p, load(p) + v); }
static inline float sum(v8 v) {
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

struct Tables {  // of layer 1; rows of a token are `row` (c_s, R) and `wide` (u, t_s) numbers
  idx e, H, P, row, wide;
  float *c[2], *R, *u, *t[2], *dc[2], *dR, *du, *dt[2];
};

struct Pairs {  // examples of a chunk
  idx n;
  const int32_t *x0, *x1, *y;
};

#define LENGTH                                    \
  enum { MAX = FIXED ? FIXED : MOST };            \
  const int K = FIXED ? FIXED : (int)(t.P / 8)

// a[b] <- the scores of example b: a row of P (heads last) or of H
template <bool HEADS_LAST, int FIXED>
static void scores(const Tables& t, const Pairs& x, float* a) {
  LENGTH;
  for (idx b = 0; b < x.n; b++) {
    const float *c0 = t.c[0] + x.x0[b] * t.row, *c1 = t.c[1] + x.x1[b] * t.row;
    const float* u = t.u + x.x1[b] * t.wide;
    if (HEADS_LAST) {
      v8 s[MAX];
      for (int k = 0; k < K; k++) s[k] = v8{};
      for (idx j = 0; j < t.e; j++)
        for (int k = 0; k < K; k++) s[k] += load(u + j * t.P + 8 * k) * (c0[j] - c1[j]);
      for (int k = 0; k < K; k++) store(a + b * t.P + 8 * k, s[k]);
    } else {
      v8 delta[MAX];
      for (int k = 0; k < K; k++) delta[k] = load(c0 + 8 * k) - load(c1 + 8 * k);
      for (idx h = 0; h < t.H; h++) {
        v8 s = {};
        for (int k = 0; k < K; k++) s += load(u + h * t.P + 8 * k) * delta[k];
        a[b * t.H + h] = sum(s);
      }
    }
  }
}

// o[b] <- R[x_1] + sum_h a_h (t_0[x_0] - t_1[x_1])_h, a row of `row`
template <bool HEADS_LAST, int FIXED>
static void mix(const Tables& t, const Pairs& x, const float* a, float* o) {
  LENGTH;
  for (idx b = 0; b < x.n; b++) {
    const float *t0 = t.t[0] + x.x0[b] * t.wide, *t1 = t.t[1] + x.x1[b] * t.wide;
    const float* R = t.R + x.x1[b] * t.row;
    v8 s[MAX];
    if (HEADS_LAST) {
      for (int k = 0; k < K; k++) s[k] = load(a + b * t.P + 8 * k);
      for (idx i = 0; i < t.e; i++) {
        v8 v = {};
        for (int k = 0; k < K; k++)
          v += s[k] * (load(t0 + i * t.P + 8 * k) - load(t1 + i * t.P + 8 * k));
        o[b * t.row + i] = R[i] + sum(v);
      }
    } else {
      for (int k = 0; k < K; k++) s[k] = load(R + 8 * k);
      for (idx h = 0; h < t.H; h++)
        for (int k = 0; k < K; k++)
          s[k] += a[b * t.H + h] * (load(t0 + h * t.P + 8 * k) - load(t1 + h * t.P + 8 * k));
      for (int k = 0; k < K; k++) store(o + b * t.row + 8 * k, s[k]);
    }
  }
}

// From rows of d_o: all gradients of the tables, added up
template <bool HEADS_LAST, int FIXED>
static void attend_back(const Tables& t, const Pairs& x, const float* a, const float* d_o) {
  LENGTH;
  for (idx b = 0; b < x.n; b++) {
    const idx r0 = x.x0[b] * t.row, r1 = x.x1[b] * t.row;
    const idx w0 = x.x0[b] * t.wide, w1 = x.x1[b] * t.wide;
    const float *t0 = t.t[0] + w0, *t1 = t.t[1] + w1, *u = t.u + w1, *g = d_o + b * t.row;
    const float *c0 = t.c[0] + r0, *c1 = t.c[1] + r1;
    float *dt0 = t.dt[0] + w0, *dt1 = t.dt[1] + w1, *du = t.du + w1, *dR = t.dR + r1;
    float *dc0 = t.dc[0] + r0, *dc1 = t.dc[1] + r1;
    if (HEADS_LAST) {
      v8 s[MAX], ab[MAX];
      for (int k = 0; k < K; k++) s[k] = v8{}, ab[k] = load(a + b * t.P + 8 * k);
      for (idx i = 0; i < t.e; i++) {
        dR[i] += g[i];
        for (int k = 0; k < K; k++) {
          const idx at = i * t.P + 8 * k;
          const v8 moved = ab[k] * g[i];
          s[k] += g[i] * (load(t0 + at) - load(t1 + at));
          accumulate(dt0 + at, moved);
          accumulate(dt1 + at, -moved);
        }
      }
      for (int k = 0; k < K; k++) s[k] *= ab[k] * (1.0f - ab[k]);
      for (idx j = 0; j < t.e; j++) {
        v8 v = {};
        for (int k = 0; k < K; k++) {
          const idx at = j * t.P + 8 * k;
          v += s[k] * load(u + at);
          accumulate(du + at, s[k] * (c0[j] - c1[j]));
        }
        const float d_delta = sum(v);
        dc0[j] += d_delta;
        dc1[j] -= d_delta;
      }
    } else {
      v8 gb[MAX], delta[MAX], d_delta[MAX];
      for (int k = 0; k < K; k++) {
        gb[k] = load(g + 8 * k);
        delta[k] = load(c0 + 8 * k) - load(c1 + 8 * k);
        d_delta[k] = v8{};
        accumulate(dR + 8 * k, gb[k]);
      }
      for (idx h = 0; h < t.H; h++) {
        const float ah = a[b * t.H + h];
        v8 v = {};
        for (int k = 0; k < K; k++) {
          const idx at = h * t.P + 8 * k;
          const v8 moved = gb[k] * ah;
          v += gb[k] * (load(t0 + at) - load(t1 + at));
          accumulate(dt0 + at, moved);
          accumulate(dt1 + at, -moved);
        }
        const float ds = sum(v) * ah * (1.0f - ah);
        for (int k = 0; k < K; k++) {
          const idx at = h * t.P + 8 * k;
          d_delta[k] += ds * load(u + at);
          accumulate(du + at, ds * delta[k]);
        }
      }
      for (int k = 0; k < K; k++) {
        accumulate(dc0 + 8 * k, d_delta[k]);
        accumulate(dc1 + 8 * k, -d_delta[k]);
      }
    }
  }
}

// z[i, j] = sum_k x[i, k] y[j, k] for every head (heads last), times `scale`; and back
template <int FIXED>
static void products(const Tables& t, const float* x, const float* y, float* z, idx rank, float scale) {
  LENGTH;
  for (idx i = 0; i < t.e; i++)
    for (idx j = 0; j < t.e; j++) {
      v8 s[MAX];
      for (int k = 0; k < K; k++) s[k] = v8{};
      for (idx m = 0; m < rank; m++)
        for (int k = 0; k < K; k++)
          s[k] += load(x + (i * rank + m) * t.P + 8 * k) * load(y + (j * rank + m) * t.P + 8 * k);
      for (int k = 0; k < K; k++) store(z + (i * t.e + j) * t.P + 8 * k, s[k] * scale);
    }
}

template <int FIXED>
static void products_back(const Tables& t, const float* x, const float* y, const float* dz, float* dx,
                          float* dy, idx rank, float scale) {
  LENGTH;
  for (idx i = 0; i < t.e; i++)
    for (idx m = 0; m < rank; m++) {
      v8 s[MAX], r[MAX];
      for (int k = 0; k < K; k++) s[k] = r[k] = v8{};
      for (idx j = 0; j < t.e; j++)
        for (int k = 0; k < K; k++) {
          s[k] += load(dz + (i * t.e + j) * t.P + 8 * k) * load(y + (j * rank + m) * t.P + 8 * k);
          r[k] += load(dz + (j * t.e + i) * t.P + 8 * k) * load(x + (j * rank + m) * t.P + 8 * k);
        }
      for (int k = 0; k < K; k++) {
        store(dx + (i * rank + m) * t.P + 8 * k, s[k] * scale);
        store(dy + (i * rank + m) * t.P + 8 * k, r[k] * scale);
      }
    }
}

struct Code {  // the functions above for one length of rows
  void (*scores)(const Tables&, const Pairs&, float*);
  void (*mix)(const Tables&, const Pairs&, const float*, float*);
  void (*attend_back)(const Tables&, const Pairs&, const float*, const float*);
  void (*products)(const Tables&, const float*, const float*, float*, idx, float);
  void (*products_back)(const Tables&, const float*, const float*, const float*, float*, float*, idx,
                        float);
};
template <bool HEADS_LAST, int K>
static const Code code = {scores<HEADS_LAST, K>, mix<HEADS_LAST, K>, attend_back<HEADS_LAST, K>,
                          products<K>, products_back<K>};
template <bool HEADS_LAST>
static const Code& code_of(idx K) {
  static const Code* all[] = {&code<HEADS_LAST, 0>, &code<HEADS_LAST, 1>, &code<HEADS_LAST, 2>,
                              &code<HEADS_LAST, 3>, &code<HEADS_LAST, 4>, &code<HEADS_LAST, 5>,
                              &code<HEADS_LAST, 6>, &code<HEADS_LAST, 7>, &code<HEADS_LAST, 8>};
  return *all[K <= 8 ? K : 0];
}

// ---- the step

struct Layer {
  idx P, wide;                               // a head's row in G and W, and all heads' together
  float *G, *W, *A, *dG, *dW, *dA;           // e x wide; A: e x e
  float *x0, *c0, *o0, *m0, *act0, *D0, *dc0;  // position 0: a column for each token
  float *x, *c, *delta, *o, *m, *act, *D;      // position 1: the columns of a chunk
  float *a, *wide1, *wide2;                  // a; phi and Y, or u and z
};

struct Step {
  const Shape& s;
  const bool heads_last;
  const idx N, d, e, H;
  const float* theta = nullptr;
  float* grad = nullptr;
  double lost = 0;  // sum of the losses of the examples that were counted
  Layer* layer;
  Tables t;
  const Code& code;
  int32_t *x0, *x1, *y, *token[2], *start, *number;
  idx V0, V1;  // how many tokens stand at each position, which are token[0] and token[1]
  float *x_end, *x1_table, *c1_table, *dx0, *dx1_table, *dc1_table, *columns, *d_hidden0;
  float *rows, *L, *top, *total, *hits, *behind, *dx, *d_out, *dc, *d_delta, *da, *work, *d_hidden;

  Step(const Shape& shape, Layer* layers, Arena& room)
      : s(shape), heads_last(s.heads_last), N(s.N), d(s.d), e(s.e), H(s.H), layer(layers),
        code(heads_last ? code_of<true>(up(s.H, 8) / 8) : code_of<false>(up(s.e, 8) / 8)) {
    const idx n = s.chunk, P = up(heads_last ? H : e, 8), w = s.w, V = N < s.batch ? N : s.batch;
    idx widest = 0;
    for (idx l = 0; l < s.layers; l++) {
      Layer& y = layer[l];
      y.P = heads_last || l == 0 ? P : e;
      y.wide = y.P * (heads_last ? e : H);
      room.take(e * y.wide, {&y.G, &y.W, &y.dG, &y.dW});
      room.take(e * e, {&y.A, &y.dA});
      room.take(d * V, {&y.x0});
      room.take(e * V, {&y.c0, &y.o0, &y.dc0});
      room.take(d * n, {&y.x});
      room.take(e * n, {&y.c, &y.delta, &y.o});
      room.take((heads_last ? P : H) * n, {&y.a});
      if (w) {
        room.take((d + 1) * V, {&y.m0});
        room.take(w * V, {&y.act0, &y.D0});
        room.take((d + 1) * n, {&y.m});
        room.take(w * n, {&y.act, &y.D});
      }
      if (l) {
        widest = e * (heads_last ? e : H);
        room.take(widest * n, {&y.wide1, &y.wide2});
      }
    }
    t.e = e, t.H = H, t.P = P, t.row = heads_last ? e : P, t.wide = layer[0].wide;
    room.take(V * t.row, {&t.c[0], &t.c[1], &t.R, &t.dc[0], &t.dc[1], &t.dR});
    room.take(V * t.wide, {&t.u, &t.t[0], &t.t[1], &t.du, &t.dt[0], &t.dt[1]});
    room.take(t.row * n, {&rows});
    room.take(s.batch, {&x0, &x1, &y});
    room.take(V, {&token[0], &token[1]});
    room.take(N, {&start, &number});
    room.take(d * V, {&x1_table, &dx0, &dx1_table});
    room.take(e * V, {&c1_table, &dc1_table, &columns});
    room.take(w * V, {&d_hidden0});
    room.take(N * n, {&L});
    room.take(n, {&top, &total, &hits, &behind});
    room.take(d * n, {&x_end, &dx});
    room.take(e * n, {&d_out, &dc, &d_delta});
    room.take(H * n, {&da});
    room.take(widest * n, {&work});
    room.take(w * n, {&d_hidden});
  }

  const float* weight(Name name, idx l = 0) const { return theta + s.at[name] + l * s.stride[name]; }
  float* gradient(Name name, idx l = 0) const { return grad + s.at[name] + l * s.stride[name]; }

  // ---- a layer's heads as matrices: G_h and W_h, and A

  void fold(idx l) {
    Layer& y = layer[l];
    const float scale = (float)s.scale;
    if (heads_last) {
      code.products(t, weight(W_Q, l), weight(W_K, l), y.G, s.qk_rank, scale);
      code.products(t, weight(W_V, l), weight(W_O, l), y.W, s.d_h, 1.0f);
      for (idx i = 0; i < e * e; i++) {
        float total = 0;
        for (idx h = 0; h < y.P; h++) total += y.W[i * y.P + h];
        y.A[i] = total;
      }
      return;
    }
    zero(y.G, e * y.wide);
    zero(y.W, e * y.wide);
    zero(y.A, e * e);
    for (idx h = 0; h < H; h++) {
      const idx qk = h * e * s.qk_rank, vo = h * e * s.d_h;
      gemm(false, true, e, e, s.qk_rank, scale, weight(W_Q, l) + qk, s.qk_rank, weight(W_K, l) + qk,
           s.qk_rank, 0, y.G + h * y.P, y.wide);
      gemm(false, true, e, e, s.d_h, 1, weight(W_V, l) + vo, s.d_h, weight(W_O, l) + vo, s.d_h, 0,
           y.W + h * y.P, y.wide);
      for (idx i = 0; i < e; i++) add(y.A + i * e, y.W + i * y.wide + h * y.P, e);
    }
  }

  void fold_back(idx l) {
    Layer& y = layer[l];
    const float scale = (float)s.scale;
    if (heads_last) {
      for (idx i = 0; i < e * e; i++)
        for (idx h = 0; h < y.P; h++) y.dW[i * y.P + h] += y.dA[i];
      code.products_back(t, weight(W_Q, l), weight(W_K, l), y.dG, gradient(W_Q, l), gradient(W_K, l),
                         s.qk_rank, scale);
      code.products_back(t, weight(W_V, l), weight(W_O, l), y.dW, gradient(W_V, l), gradient(W_O, l),
                         s.d_h, 1.0f);
      return;
    }
    for (idx h = 0; h < H; h++) {
      const idx qk = h * e * s.qk_rank, vo = h * e * s.d_h;
      const float *dG = y.dG + h * y.P, *dW = y.dW + h * y.P;
      for (idx i = 0; i < e; i++) add(y.dW + i * y.wide + h * y.P, y.dA + i * e, e);
      head_back(dG, y.wide, weight(W_Q, l) + qk, weight(W_K, l) + qk, gradient(W_Q, l) + qk,
                gradient(W_K, l) + qk, s.qk_rank, scale);
      head_back(dW, y.wide, weight(W_V, l) + vo, weight(W_O, l) + vo, gradient(W_V, l) + vo,
                gradient(W_O, l) + vo, s.d_h, 1.0f);
    }
  }

  void head_back(const float* dz, idx ld, const float* x, const float* y, float* dx, float* dy, idx rank,
                 float scale) const {
    gemm(false, false, e, rank, e, scale, dz, ld, y, rank, 0, dx, rank);
    gemm(true, false, e, rank, e, scale, dz, ld, x, rank, 0, dy, rank);
  }

  // ---- what both positions do, on n columns

  // c <- C^T x + pos
  void read(int position, idx n, const float* x, float* c) const {
    const float* pos = s.positions == AT_ATTENTION ? weight(W_POS) + position * e : nullptr;
    for (idx i = 0; i < e; i++)
      for (idx b = 0; b < n; b++) c[i * n + b] = (s.compressed ? 0 : x[i * n + b]) + (pos ? pos[i] : 0);
    if (s.compressed) gemm(true, false, e, n, d, 1, weight(W_C), e, x, n, 1, c, n);
  }

  // dx, the gradient of m = x + D^T o (or D^T o alone) on entry, becomes that of x
  void read_back(int position, idx n, const float* x, const float* dc, float* dx) const {
    if (s.positions == AT_ATTENTION) add_rows(gradient(W_POS) + position * e, dc, e, n);
    if (!s.skip) zero(dx, d * n);
    if (s.compressed) {
      gemm(false, true, d, e, n, 1, x, n, dc, n, 1, gradient(W_C), e);
      gemm(false, false, d, n, e, 1, weight(W_C), e, dc, n, 1, dx, n);
    } else {
      add(dx, dc, d * n);
    }
  }

  // m <- x or 0; where the heads' o is to be added: in m, or in a buffer that D will read
  float* begin_write(idx n, const float* x, float* m, float* o) const {
    if (s.skip) std::memcpy(m, x, d * n * sizeof(float));
    else zero(m, d * n);
    if (s.compressed) zero(o, e * n);
    return s.compressed ? o : m;
  }

  void end_write(idx n, const float* o, float* m) const {
    if (s.compressed) gemm(true, false, d, n, e, 1, weight(W_D), d, o, n, 1, m, n);
  }

  // d_o, in `buffer` if there is a bottleneck
  const float* write_back(idx n, const float* o, const float* dm, float* buffer) const {
    if (!s.compressed) return dm;
    gemm(false, true, e, d, n, 1, o, n, dm, n, 1, gradient(W_D), d);
    gemm(false, false, e, n, d, 1, weight(W_D), d, dm, n, 0, buffer, n);
    return buffer;
  }

  // x <- m + W_out^T act(W_in^T m + b_in); m has a row of ones below, W_in the biases; W_out
  // is stored transposed
  void mlp(idx l, idx n, float* m, float* act, float* D, float* x) const {
    const idx w = s.w;
    for (idx b = 0; b < n; b++) m[d * n + b] = 1.0f;
    gemm(true, false, w, n, d + 1, 1, weight(W_IN, l), w, m, n, 0, act, n);
    activate(s.gelu, act, D, w * n);
    std::memcpy(x, m, d * n * sizeof(float));
    gemm(false, false, d, n, w, 1, weight(W_OUT, l), w, act, n, 1, x, n);
  }

  // dx becomes dm
  void mlp_back(idx l, idx n, const float* m, const float* act, const float* D, float* dx,
                float* dh) const {
    const idx w = s.w;
    gemm(false, true, d, w, n, 1, dx, n, act, n, 1, gradient(W_OUT, l), w);
    gemm(true, false, w, n, d, 1, weight(W_OUT, l), w, dx, n, 0, dh, n);
    multiply(dh, D, w * n);
    gemm(false, true, d + 1, w, n, 1, m, n, dh, n, 1, gradient(W_IN, l), w);
    gemm(false, false, d, n, w, 1, weight(W_IN, l), w, dh, n, 1, dx, n);
  }

  // ---- position 0: a column for each token

  void first_position() {
    for (idx l = 0; l < s.layers; l++) {
      Layer& y = layer[l];
      read(0, V0, y.x0, y.c0);
      if (l == s.layers - 1) return;  // of the last layer only position 1 is read
      float* next = layer[l + 1].x0;
      float* m = s.w ? y.m0 : next;
      float* o = begin_write(V0, y.x0, m, y.o0);
      gemm(true, false, e, V0, e, 1, y.A, e, y.c0, V0, 1, o, V0);
      end_write(V0, o, m);
      if (s.w) mlp(l, V0, m, y.act0, y.D0, next);
    }
  }

  void first_position_back() {
    zero(dx0, d * V0);
    for (idx l = s.layers - 1; l >= 0; l--) {
      Layer& y = layer[l];
      if (l < s.layers - 1) {
        if (s.w) mlp_back(l, V0, y.m0, y.act0, y.D0, dx0, d_hidden0);
        const float* d_o = write_back(V0, y.o0, dx0, columns);
        gemm(false, true, e, e, V0, 1, y.c0, V0, d_o, V0, 1, y.dA, e);
        gemm(false, false, e, V0, e, 1, y.A, e, d_o, V0, 1, y.dc0, V0);
      }
      read_back(0, V0, y.x0, y.dc0, dx0);
    }
  }

  // ---- layer 1 by tables

  void make_tables() {
    const Layer& y = layer[0];
    read(1, V1, x1_table, c1_table);
    float* R = begin_write(V1, x1_table, dx1_table, columns);  // both are free until the way back
    gemm(true, false, e, V1, e, 1, y.A, e, c1_table, V1, 1, R, V1);
    if (!heads_last)  // rows are longer than what they hold
      zero(t.c[0], V0 * t.row), zero(t.c[1], V1 * t.row), zero(t.R, V1 * t.row);
    to_rows(t.R, t.row, R, e, V1);
    to_rows(t.c[0], t.row, y.c0, e, V0);
    to_rows(t.c[1], t.row, c1_table, e, V1);
    gemm(true, false, V1, t.wide, e, 1, c1_table, V1, y.G, t.wide, 0, t.u, t.wide);
    gemm(true, false, V0, t.wide, e, 1, y.c0, V0, y.W, t.wide, 0, t.t[0], t.wide);
    gemm(true, false, V1, t.wide, e, 1, c1_table, V1, y.W, t.wide, 0, t.t[1], t.wide);
    zero(t.dc[0], V0 * t.row), zero(t.dc[1], V1 * t.row), zero(t.dR, V1 * t.row);
    zero(t.dt[0], V0 * t.wide), zero(t.dt[1], V1 * t.wide), zero(t.du, V1 * t.wide);
    zero(dx1_table, d * V1);
  }

  void tables_back() {
    Layer& y = layer[0];
    gemm(false, false, e, t.wide, V1, 1, c1_table, V1, t.du, t.wide, 0, y.dG, t.wide);
    gemm(false, false, e, t.wide, V0, 1, y.c0, V0, t.dt[0], t.wide, 0, y.dW, t.wide);
    gemm(false, false, e, t.wide, V1, 1, c1_table, V1, t.dt[1], t.wide, 1, y.dW, t.wide);
    add_to_columns(y.dc0, t.dc[0], t.row, e, V0);
    gemm(false, true, e, V0, t.wide, 1, y.W, t.wide, t.dt[0], t.wide, 1, y.dc0, V0);
    to_columns(dc1_table, t.dc[1], t.row, e, V1);
    gemm(false, true, e, V1, t.wide, 1, y.W, t.wide, t.dt[1], t.wide, 1, dc1_table, V1);
    gemm(false, true, e, V1, t.wide, 1, y.G, t.wide, t.du, t.wide, 1, dc1_table, V1);
    to_columns(columns, t.dR, t.row, e, V1);
    gemm(false, true, e, e, V1, 1, c1_table, V1, columns, V1, 1, y.dA, e);
    gemm(false, false, e, V1, e, 1, y.A, e, columns, V1, 1, dc1_table, V1);
    if (!s.compressed) std::memcpy(dx1_table, columns, d * V1 * sizeof(float));
    read_back(1, V1, x1_table, dc1_table, dx1_table);
  }

  void attend_by_tables(const Pairs& p, float* m) {
    Layer& y = layer[0];
    code.scores(t, p, y.a);
    sigmoids(y.a, p.n * (heads_last ? t.P : H));
    code.mix(t, p, y.a, rows);
    if (s.compressed) {
      to_columns(y.o, rows, t.row, e, p.n);
      if (s.skip) gather(m, x1_table, p.x1, d, V1, p.n);
      else zero(m, d * p.n);
      end_write(p.n, y.o, m);
    } else {
      to_columns(m, rows, t.row, e, p.n);
    }
  }

  void attend_by_tables_back(const Pairs& p, const float* dm) {
    Layer& y = layer[0];
    const float* d_o = write_back(p.n, y.o, dm, d_out);
    if (s.compressed && s.skip) scatter(dx1_table, dm, p.x1, d, V1, p.n);
    if (!heads_last) zero(rows, t.row * p.n);
    to_rows(rows, t.row, d_o, e, p.n);
    code.attend_back(t, p, y.a, rows);
  }

  // ---- a layer at position 1, by features or u/z

  void attend(idx l, const Pairs& p, float* m) {
    Layer& y = layer[l];
    const idx n = p.n;
    read(1, n, y.x, y.c);
    gather(y.delta, y.c0, p.x0, e, V0, n);
    for (idx i = 0; i < e * n; i++) y.delta[i] -= y.c[i];
    float* o = begin_write(n, y.x, m, y.o);
    if (heads_last) {
      features(y, n, o);
    } else {
      gemm(true, false, H * e, n, e, 1, y.G, y.wide, y.c, n, 0, y.wide1, n);
      zero(y.a, H * n);
      for (idx h = 0; h < H; h++)
        for (idx j = 0; j < e; j++) {
          const float *u = y.wide1 + (h * e + j) * n, *delta = y.delta + j * n;
          for (idx b = 0; b < n; b++) y.a[h * n + b] += u[b] * delta[b];
        }
      sigmoids(y.a, H * n);
      for (idx i = 0; i < e; i++)
        for (idx h = 0; h < H; h++) {
          const float *a = y.a + h * n, *delta = y.delta + i * n, *c = y.c + i * n;
          float* z = y.wide2 + (i * H + h) * n;
          for (idx b = 0; b < n; b++) z[b] = a[b] * delta[b] + c[b];
        }
      gemm(true, false, e, n, e * H, 1, y.W, e, y.wide2, n, 1, o, n);
    }
    end_write(n, o, m);
  }

  void features(Layer& y, idx n, float* o) {
    for (idx i = 0; i < e; i++)
      for (idx j = 0; j < e; j++) {
        const float *c = y.c + i * n, *delta = y.delta + j * n;
        float* phi = y.wide1 + (i * e + j) * n;
        for (idx b = 0; b < n; b++) phi[b] = c[b] * delta[b];
      }
    gemm(true, false, H, n, e * e, 1, y.G, y.P, y.wide1, n, 0, y.a, n);
    sigmoids(y.a, H * n);
    gemm(false, false, e * e, n, H, 1, y.W, y.P, y.a, n, 0, y.wide2, n);
    gemm(true, false, e, n, e, 1, y.A, e, y.c, n, 1, o, n);
    for (idx r = 0; r < e; r++)
      for (idx i = 0; i < e; i++) {
        const float *delta = y.delta + i * n, *Y = y.wide2 + (i * e + r) * n;
        for (idx b = 0; b < n; b++) o[r * n + b] += delta[b] * Y[b];
      }
  }

  // dx, the gradient of m on entry, becomes that of x
  void attend_back(idx l, const Pairs& p, float* dx) {
    Layer& y = layer[l];
    const idx n = p.n;
    const float* d_o = write_back(n, y.o, dx, d_out);
    if (heads_last) features_back(y, n, d_o);
    else uz_back(y, n, d_o);
    scatter(y.dc0, d_delta, p.x0, e, V0, n);
    for (idx i = 0; i < e * n; i++) dc[i] -= d_delta[i];
    read_back(1, n, y.x, dc, dx);
  }

  void features_back(Layer& y, idx n, const float* d_o) {
    zero(d_delta, e * n);
    for (idx i = 0; i < e; i++)
      for (idx r = 0; r < e; r++) {
        const float *Y = y.wide2 + (i * e + r) * n, *g = d_o + r * n, *delta = y.delta + i * n;
        float *dY = work + (i * e + r) * n, *dd = d_delta + i * n;
        for (idx b = 0; b < n; b++) dd[b] += Y[b] * g[b], dY[b] = delta[b] * g[b];
      }
    gemm(true, false, H, n, e * e, 1, y.W, y.P, work, n, 0, da, n);
    gemm(false, true, e * e, H, n, 1, work, n, y.a, n, 1, y.dW, y.P);
    sigmoids_back(da, y.a, H * n);
    gemm(false, true, e * e, H, n, 1, y.wide1, n, da, n, 1, y.dG, y.P);
    gemm(false, false, e * e, n, H, 1, y.G, y.P, da, n, 0, work, n);
    gemm(false, true, e, e, n, 1, y.c, n, d_o, n, 1, y.dA, e);
    gemm(false, false, e, n, e, 1, y.A, e, d_o, n, 0, dc, n);
    for (idx i = 0; i < e; i++)
      for (idx j = 0; j < e; j++) {
        const float *dphi = work + (i * e + j) * n, *c = y.c + i * n, *delta = y.delta + j * n;
        float *dci = dc + i * n, *dd = d_delta + j * n;
        for (idx b = 0; b < n; b++) dci[b] += dphi[b] * delta[b], dd[b] += dphi[b] * c[b];
      }
  }

  void uz_back(Layer& y, idx n, const float* d_o) {
    gemm(false, true, e * H, e, n, 1, y.wide2, n, d_o, n, 1, y.dW, e);
    gemm(false, false, e * H, n, e, 1, y.W, e, d_o, n, 0, work, n);
    for (float* z : {dc, d_delta}) zero(z, e * n);
    zero(da, H * n);
    for (idx i = 0; i < e; i++)
      for (idx h = 0; h < H; h++) {
        const float *dz = work + (i * H + h) * n, *delta = y.delta + i * n, *a = y.a + h * n;
        float *dah = da + h * n, *dci = dc + i * n, *dd = d_delta + i * n;
        for (idx b = 0; b < n; b++)
          dah[b] += dz[b] * delta[b], dci[b] += dz[b], dd[b] += dz[b] * a[b];
      }
    sigmoids_back(da, y.a, H * n);
    for (idx h = 0; h < H; h++)
      for (idx j = 0; j < e; j++) {
        const float *u = y.wide1 + (h * e + j) * n, *ds = da + h * n, *delta = y.delta + j * n;
        float *du = work + (h * e + j) * n, *dd = d_delta + j * n;
        for (idx b = 0; b < n; b++) dd[b] += ds[b] * u[b], du[b] = ds[b] * delta[b];
      }
    gemm(false, true, e, H * e, n, 1, y.c, n, work, n, 1, y.dG, y.wide);
    gemm(false, false, e, n, H * e, 1, y.G, y.wide, work, n, 1, dc, n);
  }

  // ---- the loss: logits W_U^T x, times log2(e), become their gradient. Right answers are returned
  // and losses added to `lost` where they are counted.

  idx loss(const Pairs& p, const float* x, float share, bool count) {
    const idx n = p.n;
    gemm(true, false, N, n, d, 1.44269504f, weight(W_U), N, x, n, 0, L, n);
    std::memcpy(top, L, n * sizeof(float));
    for (idx j = 1; j < N; j++)
      for (idx b = 0; b < n; b++) top[b] = L[j * n + b] > top[b] ? L[j * n + b] : top[b];
    if (count)
      for (idx b = 0; b < n; b++)
        hits[b] = is_first_largest(p, b), behind[b] = L[p.y[b] * n + b] - top[b];
    idx right = 0;
    zero(total, n);
    for (idx j = 0; j < N; j++)
      for (idx b = 0; b < n; b++) total[b] += L[j * n + b] = exp2_clamped(L[j * n + b] - top[b]);
    for (idx b = 0; b < n; b++) {
      if (count) right += hits[b] > 0 && total[b] == total[b];  // NaN: nothing is right
      // of -log p, -log(p + 1e-12) or 1 - p, p the right answer's share
      const float part = L[p.y[b] * n + b] / total[b];
      if (count) lost += loss_of(part, behind[b], total[b]);
      top[b] = share * (s.loss == CROSS_ENTROPY ? 1.0f : s.loss == AS_CODED ? part / (part + 1e-12f) : part);
      total[b] = top[b] / total[b];
    }
    for (idx j = 0; j < N; j++)
      for (idx b = 0; b < n; b++) L[j * n + b] *= total[b];
    for (idx b = 0; b < n; b++) L[p.y[b] * n + b] -= top[b];
    gemm(false, true, d, N, n, 1, x, n, L, n, 1, gradient(W_U), N);
    gemm(false, false, d, n, N, 1, weight(W_U), N, L, n, 0, dx, n);
    return right;
  }

  // -log p by the distance of its logit from the largest: p itself does not fall below 2^-120
  double loss_of(float part, float behind, float total) const {
    if (s.loss == TOTAL_VARIATION) return 1.0 - part;
    if (s.loss == AS_CODED) return -std::log(part + 1e-12);
    return std::log((double)total) - 0.69314718 * behind;
  }

  bool is_first_largest(const Pairs& p, idx b) const {
    for (idx j = 0; j < p.y[b]; j++)
      if (L[j * p.n + b] == top[b]) return false;
    return L[p.y[b] * p.n + b] == top[b];
  }

  // ---- all of it for one model

  // Examples in the order of their last token, so that rows of tables stay in the cache; tokens
  // become the numbers of their columns.
  void sort(const int32_t* examples, const int64_t* order, idx count) {
    for (idx v = 0; v < N; v++) start[v] = 0, number[v] = -1;
    for (idx b = 0; b < count; b++) start[examples[3 * (order ? order[b] : b) + 1]]++;
    V0 = V1 = 0;
    for (idx v = 0, at = 0; v < N; v++) {
      if (start[v]) token[1][V1++] = (int32_t)v;
      at += start[v];
      start[v] = (int32_t)(at - start[v]);
    }
    for (idx b = 0; b < count; b++) {
      const int32_t *example = examples + 3 * (order ? order[b] : b), at = start[example[1]]++;
      if (number[example[0]] < 0) {
        number[example[0]] = (int32_t)V0;
        token[0][V0++] = example[0];
      }
      x0[at] = number[example[0]], x1[at] = example[1], y[at] = example[2];
    }
    for (idx v = 0; v < V1; v++) number[token[1][v]] = (int32_t)v;
    for (idx b = 0; b < count; b++) x1[b] = number[x1[b]];
  }

  idx chunk(const Pairs& p, float share, bool count) {
    for (idx l = 0; l < s.layers; l++) {
      Layer& z = layer[l];
      float* next = l + 1 < s.layers ? layer[l + 1].x : x_end;
      float* m = s.w ? z.m : next;
      if (l) attend(l, p, m);
      else attend_by_tables(p, m);
      if (s.w) mlp(l, p.n, m, z.act, z.D, next);
    }
    const idx right = loss(p, x_end, share, count);
    for (idx l = s.layers - 1; l >= 0; l--) {
      Layer& z = layer[l];
      if (s.w) mlp_back(l, p.n, z.m, z.act, z.D, dx, d_hidden);
      if (l) attend_back(l, p, dx);
      else attend_by_tables_back(p, dx);
    }
    return right;
  }

  void embed(int position, idx V, float* x) const {
    gather(x, weight(W_E), token[position], d, N, V);
    if (s.positions == AT_INPUT)
      for (idx i = 0; i < d; i++)
        for (idx v = 0; v < V; v++) x[i * V + v] += weight(W_POS)[position * d + i];
  }

  void embed_back(int position, idx V, const float* dx) const {
    scatter(gradient(W_E), dx, token[position], d, N, V);
    if (s.positions == AT_INPUT) add_rows(gradient(W_POS) + position * d, dx, d, V);
  }

  idx run(const int32_t* examples, const int64_t* order, idx count, bool log) {
    zero(grad, s.numbers);
    if (!count) return 0;
    sort(examples, order, count);
    for (idx l = 0; l < s.layers; l++) {
      Layer& z = layer[l];
      fold(l);
      zero(z.dG, e * z.wide), zero(z.dW, e * z.wide), zero(z.dA, e * e), zero(z.dc0, e * V0);
    }
    embed(0, V0, layer[0].x0);
    embed(1, V1, x1_table);
    first_position();
    make_tables();
    const idx chunks = (count + s.chunk - 1) / s.chunk, size = up((count + chunks - 1) / chunks, 16);
    idx right = 0;
    for (idx at = 0; at < count; at += size)
      right += chunk({size < count - at ? size : count - at, x0 + at, x1 + at, y + at},
                     1.0f / (float)count, log);
    tables_back();
    first_position_back();
    embed_back(0, V0, dx0);
    embed_back(1, V1, dx1_table);
    for (idx l = 0; l < s.layers; l++) fold_back(l);
    return right;
  }
};

static const idx DEEPEST = 64;  // layers

API idx room(const Shape* shape) {
  Layer layers[DEEPEST];
  Arena counted{nullptr};
  Step step(*shape, layers, counted);
  return counted.used;
}

// Gradients of every model's mean loss on its examples (x_0, x_1, y): number `order` (models x
// batch), or without an order the first `counts[m]`. `right`, if it is given, counts right answers, and
// `losses` has the mean loss then.
API void gradients(const Shape* shape, idx models, const float* theta, float* grad,
                   const int32_t* examples, idx examples_stride, const int64_t* order,
                   const int64_t* counts, float* memory, int64_t* right, double* losses) {
  FlushDenormals flush;
  Layer layers[DEEPEST];
  Arena arena{memory};
  Step step(*shape, layers, arena);
  for (idx m = 0; m < models; m++) {
    step.theta = theta + m * shape->numbers;
    step.grad = grad + m * shape->numbers;
    const idx hits = step.run(examples + m * examples_stride,
                              order ? order + m * shape->batch : nullptr, counts[m], right != nullptr);
    if (!right) continue;
    right[m] = hits;
    losses[m] = counts[m] ? step.lost / (double)counts[m] : 0.0;
    step.lost = 0;
  }
}
