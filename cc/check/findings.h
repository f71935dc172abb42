// What checks have found.
#ifndef TF_TPU_EXT_CC_CHECK_FINDINGS_H_
#define TF_TPU_EXT_CC_CHECK_FINDINGS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cc/base/core_numbers.h"

namespace tf_tpu_ext {

// Kinds of findings.
inline constexpr char kNanFinding[] = "nan";
inline constexpr char kInfinityFinding[] = "infinity";
inline constexpr char kUnwrittenFinding[] = "unwritten";
inline constexpr char kReplicasDifferFinding[] = "replicas-differ";
inline constexpr char kRaceFinding[] = "race";

// A place where something is wrong, as of when it was first seen.
struct Finding {
  std::string kind;
  int64_t program_id = 0;
  std::string program;
  // Which launch of the program, starting at 1.
  int64_t step = 0;
  int replica = 0;
  // Where it begins: the TensorFlow op, its Python line if known, and the HLO instruction.
  std::string op;
  std::string source;
  std::string instruction;
  // The argument's number, if it begins with a value that was passed to the program.
  int argument = -1;
  // Where it arrives: the number of a variable among the arguments, or else of a result.
  int variable = -1;
  int result = -1;
  // The last op before it arrives, or the other op of a race.
  std::string other_op;
  std::string other_source;
  // The number of steps in which it was seen.
  int64_t count = 0;
};

// A race that there is only if two replicas reach two clusters in the same step, or both the same
// one.
struct PossibleRace {
  // How the clusters are noted.
  std::string cluster;
  std::string other_cluster;
  Finding finding;
};

// The cores that called each function of the host.
using HostCallers = std::map<std::string, std::set<Slot>>;

// Thread-safe.
class Findings {
 public:
  static constexpr size_t kMost = 1000;

  // Counts a step of the program; the first is 1.
  int64_t BeginStep(int64_t program_id);

  // Only counts the finding if there is already one of the same kind, place and variable. Drops
  // findings beyond kMost.
  void Add(Finding finding);

  // Drops races beyond kMost.
  void AddPossible(PossibleRace race);

  // Adds the possible races that a step has shown to be real.
  void AddRacesOf(const HostCallers& callers, int64_t step);

  // Determines the order in which the cores of watched steps call the host.
  void set_seed(uint64_t seed) { seed_.store(seed, std::memory_order_relaxed); }
  uint64_t seed() const { return seed_.load(std::memory_order_relaxed); }

  // Whether a step has computed non-finite values.
  bool HasNonFinite() const;

  // In the order in which they were found.
  std::vector<Finding> Get() const;
  int64_t steps() const;

 private:
  // Races in graphs have no program number: their lines distinguish them.
  using Key = std::tuple<std::string, int64_t, std::string, std::string, std::string, int, int,
                         std::string, std::string>;

  static Key KeyOf(const Finding& finding);

  std::atomic<uint64_t> seed_{0};
  mutable absl::Mutex mutex_;
  std::map<int64_t, int64_t> steps_ ABSL_GUARDED_BY(mutex_);
  std::map<Key, size_t> places_ ABSL_GUARDED_BY(mutex_);
  std::vector<Finding> findings_ ABSL_GUARDED_BY(mutex_);
  // By their clusters and places.
  std::map<std::tuple<std::string, std::string, Key>, Finding> possible_races_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_CHECK_FINDINGS_H_
