// Loss and gradient of E_out o FF_2 o attention o FF_1 o E_in, of which a token has m numbers, few.
//
//   FF block:   z <- z + W_2 relu(W_1 z + b_1) + b_2
//   attention:  y = z_read + A^T mean,  mean = sum_l a_l z_l,  A = W_V W_O,
//               a_l = 1/n, or softmax_l(z_read^T G z_l) with G = W_Q W_K^T
//
// The caller multiplies by E_in: `x` holds what FF_1 reads, one column a token vector, and ends as
// the gradient with respect to it. A token that occurs often has one column: FF_1 is computed once
// for it, `at` says which column stands where. FF_2 is computed at the read position only.
//
// Numbers of one feature lie side by side (row k of x is feature k of all tokens), so that a vector
// register holds one feature of several tokens; tokens go through all blocks in tiles that stay in
// the cache. Of every block only its input is kept, or not even that (`keep`): hidden units are
// computed again on the way back.
#include "common.h"
#include <algorithm>
#include <cmath>

#if defined(__AVX512F__)
constexpr idx V = 16;  // numbers in a register
#elif defined(__AVX__)
constexpr idx V = 8;
#else
constexpr idx V = 4;
#endif
typedef float vec __attribute__((vector_size(4 * V), aligned(4), may_alias));
constexpr idx TILE = 512;  // tokens
constexpr idx GROUP = 64;  // columns come in groups of so many: several registers of any width

// All that a call needs; `Task` of kernels/narrow.py has the same fields. Steps are from one model
// to the next, 0 where all models read the same.
struct Task {
  idx m, wide, q, s, outputs, blocks, first, n, read, uniform, squares;
  idx models, rows, columns, stride, keep, backward;
  idx at_step, target_step, share_step;
  double tolerance;
  const float *W_1, *b_1, *W_2, *b_2, *W_Q, *W_K, *W_V, *W_O, *E_out;
  float *gW_1, *gb_1, *gW_2, *gb_2, *gW_Q, *gW_K, *gW_V, *gW_O, *gE_out;
  float* x;              // (models, wide, stride), 0 in the rows from m on
  const int32_t* at;     // (rows, n) columns of x; null: the columns in their order
  const void* targets;   // classes, int64 (rows), or values, float (rows, outputs)
  const float* shares;   // of every row in the mean loss; 0 for padding
  float* work;           // `narrow_room` numbers
  double* losses;        // (models): the shares' sum of losses is added
  idx* hits;             // (models): rows that are right are added
};

static idx padded(idx count) { return (count + GROUP - 1) / GROUP * GROUP; }
static idx unit_size(const Task& t) { return 2 * t.wide + 1; }
static idx block_size(const Task& t) { return t.q * unit_size(t) + t.wide; }

// Where everything lies in `work`. All parts begin at a multiple of GROUP numbers.
struct Room {
  idx packed, sums, A, G, gA, gG, H, dH, inputs, later, D, E, logits, mean, a, z, share, end;

  explicit Room(const Task& t) {
    idx used = 0;
    auto take = [&used](idx numbers) { return used += padded(numbers), used - padded(numbers); };
    const idx m = t.wide, tiles = (t.columns + TILE - 1) / TILE, tile = m * TILE;
    packed = take(t.blocks * block_size(t));
    sums = take(2 * t.blocks * block_size(t));  // doubles
    A = take(m * m), G = take(m * m), gA = take(2 * m * m), gG = take(2 * m * m);
    H = take(m * t.stride), dH = take(m * t.stride);
    inputs = take((t.keep ? tiles : 1) * std::max<idx>(1, t.first) * tile);
    later = take((t.blocks - t.first + 1) * tile);
    D = take(tile), E = take(tile), logits = take(t.outputs * TILE), mean = take(tile);
    a = take(t.uniform ? 0 : std::min(TILE, t.rows) * t.n);
    z = take((m + 1) * t.n);
    share = take(TILE);
    end = used;
  }
};

API idx narrow_room(const Task* task) { return Room(*task).end; }

// What does not depend on the width at the time of compiling: loss, order of the weights.
struct Base {
  const Task& t;
  const Room room;
  float* const work;

  explicit Base(const Task& task) : t(task), room(task), work(task.work) {}

  // Outputs of `count` rows from `start`, what they are worth, and D, the gradient of `z`.
  void loss(idx model, const float* z, float* D, idx start, idx count) const {
    const idx m = t.m, C = t.outputs, wide = padded(count);
    const float* E_out = t.E_out + model * m * C;
    float *o = work + room.logits, *share = work + room.share;
    std::fill_n(share, TILE, 0.f);
    std::copy_n(t.shares + model * t.share_step + start, count, share);
    for (idx c = 0; c < C; c++) {
      for (idx i = 0; i < wide; i++) o[c * TILE + i] = z[i] * E_out[c];
      for (idx k = 1; k < m; k++)
        for (idx i = 0; i < wide; i++) o[c * TILE + i] += z[k * TILE + i] * E_out[k * C + c];
    }
    if (t.squares) values(model, o, share, start, count);
    else classes(model, o, share, start, count);
    if (!t.backward) return;
    float* g = t.gE_out + model * m * C;
    std::fill_n(D, t.wide * TILE, 0.f);
    for (idx c = 0; c < C; c++)
      for (idx k = 0; k < m; k++) {
        float sum = 0;
        for (idx i = 0; i < wide; i++) sum += z[k * TILE + i] * o[c * TILE + i];
        for (idx i = 0; i < wide; i++) D[k * TILE + i] += E_out[k * C + c] * o[c * TILE + i];
        g[k * C + c] += sum;
      }
  }

  // o becomes share (softmax - one-hot).
  void classes(idx model, float* o, const float* share, idx start, idx count) const {
    const idx C = t.outputs;
    const int64_t* y = (const int64_t*)t.targets + model * t.target_step + start;
    float top[TILE], sum[TILE];
    std::copy_n(o, TILE, top);
    std::fill_n(sum, TILE, 0.f);
    for (idx c = 1; c < C; c++)
      for (idx i = 0; i < TILE; i++) top[i] = o[c * TILE + i] > top[i] ? o[c * TILE + i] : top[i];
    if (t.hits)
      for (idx i = 0; i < count; i++) {
        idx best = 0;  // NaN wins: a model that diverged has nothing right
        bool fine = o[i] == o[i];
        for (idx c = 1; c < C; c++) {
          fine &= o[c * TILE + i] == o[c * TILE + i];
          if (o[c * TILE + i] > o[best * TILE + i]) best = c;
        }
        t.hits[model] += fine && best == y[i] && share[i] > 0;
      }
    if (t.losses) {
      double all = 0;
      for (idx i = 0; i < count; i++) {
        double odds = 0;
        for (idx c = 0; c < C; c++) odds += std::exp((double)o[c * TILE + i] - top[i]);
        const double loss = std::log(odds) + top[i] - o[y[i] * TILE + i];
        all += share[i] > 0 ? share[i] * loss : 0;
      }
      t.losses[model] += all;
    }
    if (!t.backward) return;
    for (idx c = 0; c < C; c++)
      for (idx i = 0; i < TILE; i++)
        sum[i] += o[c * TILE + i] = exp_clamped(o[c * TILE + i] - top[i]);
    for (idx c = 0; c < C; c++)
      for (idx i = 0; i < TILE; i++) o[c * TILE + i] *= share[i] / sum[i];
    for (idx i = 0; i < count; i++) o[y[i] * TILE + i] -= share[i];
  }

  // o becomes share 2 (o - y) / C.
  void values(idx model, float* o, const float* share, idx start, idx count) const {
    const idx C = t.outputs;
    const float* y = (const float*)t.targets + model * t.target_step + start * C;
    for (idx i = 0; i < count; i++) {
      double squares = 0;
      bool right = true;
      for (idx c = 0; c < C; c++) {
        const float off = o[c * TILE + i] - y[i * C + c];
        squares += (double)off * off;
        right &= std::fabs(off) <= t.tolerance;
        o[c * TILE + i] = 2 * off * share[i] / C;
      }
      if (t.losses) t.losses[model] += share[i] > 0 ? share[i] * squares / C : 0;
      if (t.hits) t.hits[model] += right && share[i] > 0;
    }
    for (idx c = 0; c < C; c++)
      for (idx i = count; i < TILE; i++) o[c * TILE + i] = 0;
  }

  // Of every unit: W_1's column, b_1, W_2's row; b_2 at the end of a block. A and G from factors.
  void pack(idx model) const {
    const idx m = t.m, w = t.wide, q = t.q, s = t.s, size = unit_size(t), all = block_size(t);
    std::fill_n(work + room.packed, t.blocks * all, 0.f);
    std::fill_n((double*)(work + room.sums), t.blocks * all, 0.0);
    for (idx b = 0; b < t.blocks; b++) {
      const idx at = model * t.blocks + b;
      float* p = work + room.packed + b * all;
      for (idx j = 0; j < q; j++) {
        for (idx k = 0; k < m; k++) {
          p[j * size + k] = t.W_1[(at * m + k) * q + j];
          p[j * size + w + 1 + k] = t.W_2[(at * q + j) * m + k];
        }
        p[j * size + w] = t.b_1[at * q + j];
      }
      std::copy_n(t.b_2 + at * m, m, p + q * size);
    }
    const idx own = model * m * s;
    for (idx place : {room.A, room.G}) std::fill_n(work + place, w * w, 0.f);
    for (idx place : {room.gA, room.gG}) std::fill_n((double*)(work + place), w * w, 0.0);
    float *A = work + room.A, *G = work + room.G;
    for (idx i = 0; i < m; i++)
      for (idx k = 0; k < m; k++)
        for (idx e = 0; e < s; e++) {
          A[i * w + k] += t.W_V[own + i * s + e] * t.W_O[own + e * m + k];
          if (!t.uniform) G[i * w + k] += t.W_Q[own + i * s + e] * t.W_K[own + k * s + e];
        }
  }

  void unpack(idx model) const {
    const idx m = t.m, w = t.wide, q = t.q, s = t.s, size = unit_size(t), all = block_size(t);
    for (idx b = 0; b < t.blocks; b++) {
      const idx at = model * t.blocks + b;
      const double* p = (double*)(work + room.sums) + b * all;
      for (idx j = 0; j < q; j++) {
        for (idx k = 0; k < m; k++) {
          t.gW_1[(at * m + k) * q + j] += p[j * size + k];
          t.gW_2[(at * q + j) * m + k] += p[j * size + w + 1 + k];
        }
        t.gb_1[at * q + j] += p[j * size + w];
      }
      for (idx k = 0; k < m; k++) t.gb_2[at * m + k] += p[q * size + k];
    }
    const idx own = model * m * s;
    const double *gA = (double*)(work + room.gA), *gG = (double*)(work + room.gG);
    for (idx i = 0; i < m; i++)
      for (idx k = 0; k < m; k++)
        for (idx e = 0; e < s; e++) {
          t.gW_V[own + i * s + e] += gA[i * w + k] * t.W_O[own + e * m + k];
          t.gW_O[own + e * m + k] += gA[i * w + k] * t.W_V[own + i * s + e];
          if (t.uniform) continue;
          t.gW_Q[own + i * s + e] += gG[i * w + k] * t.W_K[own + k * s + e];
          t.gW_K[own + k * s + e] += gG[i * w + k] * t.W_Q[own + i * s + e];
        }
  }
};

// What depends on the width, M numbers a token: there is a version for some of them, and other
// models are given features that are 0.
template <int M>
struct Narrow : Base {
  using Base::Base;
  static constexpr idx m = M;
  static constexpr int ABREAST = M <= 2 ? 4 : M <= 4 ? 2 : 1;  // vectors at once, forward
  static constexpr int UNITS = M <= 2 ? 2 : 1;                 // hidden units a sweep, backward

  // y = x + W_2 relu(W_1 x + b_1) + b_2 for `count` tokens; lx and ly lead from row to row.
  void block(const float* p, const float* x, idx lx, float* y, idx ly, idx count) const {
    const idx size = 2 * m + 1, q = t.q;
    const float* b_2 = p + q * size;
    for (idx i = 0; i < count; i += ABREAST * V) {
      vec in[M][ABREAST], out[M][ABREAST];
      for (idx k = 0; k < m; k++)
        for (int r = 0; r < ABREAST; r++) {
          in[k][r] = *(const vec*)(x + k * lx + i + r * V);
          out[k][r] = in[k][r] + b_2[k];
        }
      for (idx j = 0; j < q; j++) {
        const float* u = p + j * size;
        for (int r = 0; r < ABREAST; r++) {
          vec h = u[m] + in[0][r] * u[0];
          for (idx k = 1; k < m; k++) h += in[k][r] * u[k];
          h = h < 0.f ? vec{} : h;  // NaN stays NaN
          for (idx k = 0; k < m; k++) out[k][r] += h * u[m + 1 + k];
        }
      }
      for (idx k = 0; k < m; k++)
        for (int r = 0; r < ABREAST; r++) *(vec*)(y + k * ly + i + r * V) = out[k][r];
    }
  }

  // The same backward for U hidden units: adds to their sums, and to dx what goes through them.
  template <int U>
  void units_back(const float* p, double* g, const float* x, idx lx, const float* dy, float* dx,
                  idx count) const {
    const idx size = 2 * m + 1;
    vec gw1[U][M], gb[U], gw2[U][M];
    for (int u = 0; u < U; u++) {
      gb[u] = vec{};
      for (idx k = 0; k < m; k++) gw1[u][k] = gw2[u][k] = vec{};
    }
    for (idx i = 0; i < count; i += V) {
      vec in[M], out[M], back[M];
      for (idx k = 0; k < m; k++) {
        in[k] = *(const vec*)(x + k * lx + i);
        out[k] = *(const vec*)(dy + k * TILE + i);
        back[k] = *(const vec*)(dx + k * TILE + i);
      }
      for (int u = 0; u < U; u++) {
        const float* w = p + u * size;
        vec h = w[m] + in[0] * w[0], d = out[0] * w[m + 1];
        for (idx k = 1; k < m; k++) h += in[k] * w[k], d += out[k] * w[m + 1 + k];
        d = h > 0.f ? d : vec{};
        h = h > 0.f ? h : vec{};
        gb[u] += d;
        for (idx k = 0; k < m; k++) {
          gw2[u][k] += h * out[k];
          gw1[u][k] += d * in[k];
          back[k] += d * w[k];
        }
      }
      for (idx k = 0; k < m; k++) *(vec*)(dx + k * TILE + i) = back[k];
    }
    for (int u = 0; u < U; u++, g += size) {
      g[m] += total(gb[u]);
      for (idx k = 0; k < m; k++) {
        g[k] += total(gw1[u][k]);
        g[m + 1 + k] += total(gw2[u][k]);
      }
    }
  }

  static double total(vec v) {
    float sum = 0;
    for (idx i = 0; i < V; i++) sum += v[i];
    return sum;
  }

  // Blocks from last to first - 1: D, the gradient of what the last one gave, becomes that of what
  // the first one read. `input(b)` is where block b read, and from row to row there.
  template <typename Input>
  void blocks_back(idx first, idx last, Input input, float*& D, float*& E, idx count) const {
    const idx size = unit_size(t), q = t.q;
    for (idx b = last - 1; b >= first; b--) {
      const float* p = work + room.packed + b * block_size(t);
      double* g = (double*)(work + room.sums) + b * block_size(t);
      for (idx k = 0; k < m; k++) {
        float sum = 0;
        for (idx i = 0; i < count; i++) sum += E[k * TILE + i] = D[k * TILE + i];
        g[q * size + k] += sum;
      }
      const float* x = input(b).first;
      const idx lx = input(b).second;
      idx j = 0;
      for (; j + UNITS <= q; j += UNITS)
        units_back<UNITS>(p + j * size, g + j * size, x, lx, D, E, count);
      for (; j < q; j++) units_back<1>(p + j * size, g + j * size, x, lx, D, E, count);
      std::swap(D, E);
    }
  }

  // FF_1 of the tile that begins at column `start`; inputs of its blocks go to `kept`.
  void first_blocks(const float* x, idx start, idx count, float* kept, float* H) const {
    const float* in = x + start;
    idx lx = t.stride;
    for (idx b = 0; b < t.first; b++) {
      const bool last = b + 1 == t.first;
      if (last && !H) break;
      float* out = last ? H + start : kept + b * m * TILE;
      block(work + room.packed + b * block_size(t), in, lx, out, last ? t.stride : TILE, count);
      in = out, lx = TILE;
    }
    if (!t.first)
      for (idx k = 0; k < m; k++) std::copy_n(in + k * lx, count, H + start + k * t.stride);
  }

  float* kept(idx tile) const {
    return work + room.inputs + (t.keep ? tile : 0) * std::max<idx>(1, t.first) * m * TILE;
  }

  // Tokens of sequence i as rows of n numbers, and how far one is from the next.
  const float* tokens(const float* H, const int32_t* at, idx i, idx& ld) const {
    if (!at) return ld = t.stride, H + i * t.n;
    float* z = work + room.z;
    for (idx k = 0; k < m; k++)
      for (idx l = 0; l < t.n; l++) z[k * t.n + l] = H[k * t.stride + at[i * t.n + l]];
    return ld = t.n, z;
  }

  // Reads sequence i: its column r of `y` and of `mean`, and the softmax `a`.
  void attend(const float* H, const int32_t* at, idx i, float* a, float* y, idx r) const {
    const float *A = work + room.A, *G = work + room.G;
    float mean[M], own[M];
    idx ld = t.stride;
    if (t.uniform && at) {  // straight from the table
      const int32_t* here = at + i * t.n;
      for (idx k = 0; k < m; k++) {
        const float* row = H + k * t.stride;
        float sum = 0;
        for (idx l = 0; l < t.n; l++) sum += row[here[l]];
        mean[k] = sum / t.n, own[k] = row[here[t.read]];
      }
    } else {
      const float* z = tokens(H, at, i, ld);
      for (idx k = 0; k < m; k++) own[k] = z[k * ld + t.read];
      if (!t.uniform) scores(z, ld, own, G, a);
      for (idx k = 0; k < m; k++) {
        float sum = 0;
        if (t.uniform) for (idx l = 0; l < t.n; l++) sum += z[k * ld + l];
        else for (idx l = 0; l < t.n; l++) sum += a[l] * z[k * ld + l];
        mean[k] = t.uniform ? sum / t.n : sum;
      }
    }
    for (idx k = 0; k < m; k++) {
      float sum = own[k];
      for (idx j = 0; j < m; j++) sum += mean[j] * A[j * m + k];
      y[k * TILE + r] = sum;
      (work + room.mean)[k * TILE + r] = mean[k];
    }
  }

  // a = softmax of own^T G z_l over l.
  void scores(const float* z, idx ld, const float* own, const float* G, float* a) const {
    float key[M];
    for (idx k = 0; k < m; k++) {
      key[k] = 0;
      for (idx j = 0; j < m; j++) key[k] += own[j] * G[j * m + k];
    }
    for (idx l = 0; l < t.n; l++) a[l] = key[0] * z[l];
    for (idx k = 1; k < m; k++)
      for (idx l = 0; l < t.n; l++) a[l] += key[k] * z[k * ld + l];
    float top = a[0], sum = 0;
    for (idx l = 1; l < t.n; l++) top = a[l] > top ? a[l] : top;
    for (idx l = 0; l < t.n; l++) sum += a[l] = exp_clamped(a[l] - top);
    for (idx l = 0; l < t.n; l++) a[l] /= sum;
  }

  // From the gradient of column r, `dy`: adds to dH, gA and gG.
  void attend_back(const float* H, float* dH, const int32_t* at, idx i, const float* a,
                   const float* dy, idx r) const {
    const float *A = work + room.A, *G = work + room.G, *mean = work + room.mean + r;
    double *gA = (double*)(work + room.gA), *gG = (double*)(work + room.gG);
    float dmean[M], own[M];
    for (idx j = 0; j < m; j++) {
      float sum = 0;
      for (idx k = 0; k < m; k++) {
        gA[j * m + k] += mean[j * TILE] * dy[k * TILE + r];
        sum += A[j * m + k] * dy[k * TILE + r];
      }
      dmean[j] = sum;
    }
    for (idx k = 0; k < m; k++) own[k] = dy[k * TILE + r];
    const int32_t* here = at ? at + i * t.n : nullptr;
    if (t.uniform) {
      for (idx k = 0; k < m; k++) {
        float *row = dH + k * t.stride, each = dmean[k] / t.n;
        if (here) for (idx l = 0; l < t.n; l++) row[here[l]] += each;
        else for (idx l = 0; l < t.n; l++) row[i * t.n + l] += each;
      }
    } else {
      idx ld = t.stride;
      const float* z = tokens(H, at, i, ld);
      float* ds = work + room.z + m * t.n;  // gradient of the scores
      float through = 0, key[M], dkey[M], from[M];
      for (idx l = 0; l < t.n; l++) ds[l] = dmean[0] * z[l];
      for (idx k = 1; k < m; k++)
        for (idx l = 0; l < t.n; l++) ds[l] += dmean[k] * z[k * ld + l];
      for (idx l = 0; l < t.n; l++) through += a[l] * ds[l];
      for (idx l = 0; l < t.n; l++) ds[l] = a[l] * (ds[l] - through);
      for (idx k = 0; k < m; k++) {
        from[k] = z[k * ld + t.read], key[k] = dkey[k] = 0;
        for (idx l = 0; l < t.n; l++) dkey[k] += ds[l] * z[k * ld + l];
      }
      for (idx j = 0; j < m; j++)
        for (idx k = 0; k < m; k++) {
          key[k] += from[j] * G[j * m + k];
          own[j] += G[j * m + k] * dkey[k];
          gG[j * m + k] += from[j] * dkey[k];
        }
      for (idx k = 0; k < m; k++) {
        float* row = dH + k * t.stride;
        if (here)
          for (idx l = 0; l < t.n; l++) row[here[l]] += a[l] * dmean[k] + ds[l] * key[k];
        else
          for (idx l = 0; l < t.n; l++) row[i * t.n + l] += a[l] * dmean[k] + ds[l] * key[k];
      }
    }
    const idx read = here ? here[t.read] : i * t.n + t.read;
    for (idx k = 0; k < m; k++) dH[k * t.stride + read] += own[k];
  }

  // One model: weights side by side as the blocks read them, then FF_1 of all tokens, attention and
  // FF_2 tile by tile there and back, and FF_1 back.
  void model(idx model) const {
    pack(model);
    const idx tiles = (t.columns + TILE - 1) / TILE;
    float *x = t.x + model * m * t.stride, *H = work + room.H, *dH = work + room.dH;
    const int32_t* at = t.at ? t.at + model * t.at_step : nullptr;
    const auto wide = [this](idx tile) {
      return padded(std::min(TILE, t.columns - tile * TILE));
    };
    for (idx k = 0; k < tiles; k++) first_blocks(x, k * TILE, wide(k), kept(k), H);
    if (t.backward) std::fill_n(dH, m * t.stride, 0.f);
    for (idx start = 0; start < t.rows; start += TILE) sequences(model, H, dH, at, start);
    if (!t.backward) return;
    float *D = work + room.D, *E = work + room.E;
    for (idx k = 0; k < tiles; k++) {
      const idx start = k * TILE, count = wide(k);
      if (!t.keep) first_blocks(x, start, count, kept(k), nullptr);
      for (idx j = 0; j < m; j++) std::copy_n(dH + j * t.stride + start, count, D + j * TILE);
      const auto input = [&](idx b) {
        return b ? std::make_pair((const float*)kept(k) + (b - 1) * m * TILE, TILE)
                 : std::make_pair((const float*)x + start, t.stride);
      };
      blocks_back(0, t.first, input, D, E, count);
      for (idx j = 0; j < m; j++) std::copy_n(D + j * TILE, count, x + j * t.stride + start);
    }
    unpack(model);
  }

  // Attention, FF_2 and loss of at most TILE sequences, and back to dH.
  void sequences(idx model, const float* H, float* dH, const int32_t* at, idx start) const {
    const idx count = std::min(TILE, t.rows - start), wide = padded(count);
    float *z = work + room.later, *a = work + room.a;
    for (idx k = 0; k < m; k++) std::fill_n(z + k * TILE, TILE, 0.f);
    for (idx r = 0; r < count; r++) attend(H, at, start + r, a + r * t.n, z, r);
    for (idx b = t.first; b < t.blocks; b++, z += m * TILE)
      block(work + room.packed + b * block_size(t), z, TILE, z + m * TILE, TILE, wide);
    float *D = work + room.D, *E = work + room.E;
    // Where no block wrote, numbers of an earlier call may lie.
    for (idx k = 0; k < m; k++) std::fill_n(z + k * TILE + wide, TILE - wide, 0.f);
    loss(model, z, D, start, count);
    if (!t.backward) return;
    const float* later = work + room.later;
    const auto input = [&](idx b) {
      return std::make_pair(later + (b - t.first) * m * TILE, TILE);
    };
    blocks_back(t.first, t.blocks, input, D, E, wide);
    for (idx r = 0; r < count; r++) attend_back(H, dH, at, start + r, a + r * t.n, D, r);
  }
};

template <int M>
static void run(const Task& task) {
  const Narrow<M> narrow(task);
  for (idx i = 0; i < task.models; i++) narrow.model(i);
}

// Adds to the gradients, losses and hits of all models; x ends as its own gradient.
API void narrow_run(const Task* task) {
  const FlushDenormals flushed;
  switch (task->wide) {
    case 2: return run<2>(*task);
    case 3: return run<3>(*task);
    case 4: return run<4>(*task);
    case 6: return run<6>(*task);
    case 8: return run<8>(*task);
    case 12: return run<12>(*task);
    case 16: return run<16>(*task);
  }
}

// The distinct numbers of `ids`, in the order in which they occur, to `words`; where each stands
// among them, to `at`. `seen` (one for every possible number) is -1 before and after.
API idx narrow_distinct(const int64_t* ids, idx count, int32_t* seen, int64_t* words, int32_t* at) {
  idx found = 0;
  for (idx i = 0; i < count; i++) {
    int32_t& place = seen[ids[i]];
    if (place < 0) words[found] = ids[i], place = (int32_t)found++;
    at[i] = place;
  }
  for (idx i = 0; i < found; i++) seen[words[i]] = -1;
  return found;
}
