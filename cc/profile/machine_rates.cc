#include "cc/profile/machine_rates.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tensorflow/core/platform/cpu_info.h"
#include "tensorflow/core/platform/env.h"

namespace tf_tpu_ext {
namespace {

constexpr int kRounds = 100'000;
constexpr int64_t kCopiedBytes = int64_t{16} << 20;
constexpr int kAttempts = 10;

// Vectors that the compiler knows; each number has 4 bytes.
template <int kNumbers>
struct Vector {
  typedef float Type __attribute__((vector_size(kNumbers * 4)));
};

// Returns the number of operations it did. This many independent sums keep both units of a
// processor busy.
template <int kNumbers>
__attribute__((always_inline)) inline double MultiplyAdd(volatile float* sink) {
  using Sum = typename Vector<kNumbers>::Type;
  Sum factor, addend;
  for (int i = 0; i < kNumbers; ++i) {
    factor[i] = 0.999f;
    addend[i] = 0.001f;
  }
  // Read from memory each time, because the compiler would compute equal sums only once.
  Sum a = addend + *sink, b = addend + *sink, c = addend + *sink, d = addend + *sink;
  Sum e = addend + *sink, f = addend + *sink, g = addend + *sink, h = addend + *sink;
  Sum i = addend + *sink, j = addend + *sink;
  for (int round = 0; round < kRounds; ++round) {
    a = a * factor + addend;
    b = b * factor + addend;
    c = c * factor + addend;
    d = d * factor + addend;
    e = e * factor + addend;
    f = f * factor + addend;
    g = g * factor + addend;
    h = h * factor + addend;
    i = i * factor + addend;
    j = j * factor + addend;
  }
  *sink = (a + b + c + d + e + f + g + h + i + j)[0];
  return 2.0 * kNumbers * 10 * kRounds;
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) double MultiplyAddAvx512(volatile float* sink) {
  return MultiplyAdd<16>(sink);
}
__attribute__((target("avx2,fma"))) double MultiplyAddAvx2(volatile float* sink) {
  return MultiplyAdd<8>(sink);
}
#endif

double MultiplyAddWidest(volatile float* sink) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return MultiplyAddAvx512(sink);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return MultiplyAddAvx2(sink);
#endif
  return MultiplyAdd<4>(sink);
}

// The total per second over all threads, for work that returns the amount it did. Each thread's
// best attempt counts: the machine may have other things to do.
double RateOfAll(int threads, const std::function<double(int)>& work) {
  std::vector<double> best(threads);
  {
    std::vector<std::unique_ptr<tensorflow::Thread>> workers;
    for (int thread = 0; thread < threads; ++thread) {
      workers.emplace_back(tensorflow::Env::Default()->StartThread({}, "tpu_measure", [&, thread] {
        for (int attempt = 0; attempt < kAttempts; ++attempt) {
          const absl::Time begin = absl::Now();
          const double done = work(thread);
          const double rate = done / absl::ToDoubleSeconds(absl::Now() - begin);
          best[thread] = std::max(best[thread], rate);
        }
      }));
    }
  }
  return std::accumulate(best.begin(), best.end(), 0.0);
}

}  // namespace

MachineRates MachineRates::OfCore(int cores) const {
  return {flops_per_second / cores, bytes_per_second / cores};
}

MachineRates MeasureMachine() {
  const int threads = tensorflow::port::MaxParallelism();
  MachineRates rates;
  rates.flops_per_second = RateOfAll(threads, [](int) {
    volatile float sink = 0;
    return MultiplyAddWidest(&sink);
  });
  std::vector<std::vector<char>> from(threads, std::vector<char>(kCopiedBytes, 1));
  std::vector<std::vector<char>> to(threads, std::vector<char>(kCopiedBytes, 2));
  rates.bytes_per_second = RateOfAll(threads, [&](int thread) {
    std::memcpy(to[thread].data(), from[thread].data(), kCopiedBytes);
    return 2.0 * kCopiedBytes;
  });
  return rates;
}

}  // namespace tf_tpu_ext
