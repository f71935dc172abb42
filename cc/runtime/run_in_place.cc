#include "cc/runtime/run_in_place.h"

#include <cstdint>
#include <set>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/synchronization/notification.h"
#include "tsl/profiler/lib/traceme.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;
using tensorflow::Var;

// If the variables have fewer bytes in total, locking them is not worthwhile. They get new buffers.
constexpr int64_t kMinBytes = 1 << 16;

// Holds the locks of variables, acquired in the order that everybody uses who acquires several.
class VariableLocks {
 public:
  explicit VariableLocks(std::set<Var*> variables) : variables_(std::move(variables)) {
    for (Var* variable : variables_) variable->mu()->lock();
  }
  ~VariableLocks() {
    for (Var* variable : variables_) variable->mu()->unlock();
  }
  VariableLocks(const VariableLocks&) = delete;
  VariableLocks& operator=(const VariableLocks&) = delete;

 private:
  const std::set<Var*> variables_;  // by address
};

template <typename Body>
void ForEachVariable(UpdatedVariables updated, absl::Span<const ArgumentVariables* const> owners,
                     const Body& body) {
  for (const auto& [argument, output] : updated) {
    for (const ArgumentVariables* variables : owners) {
      body((*variables)[argument].get(), argument, output);
    }
  }
}

}  // namespace

bool MayRunInPlace(UpdatedVariables updated, const Arguments& arguments,
                   absl::Span<const ArgumentVariables* const> owners) {
  int64_t bytes = 0;
  for (const auto& [argument, output] : updated) {
    bytes += arguments[argument].TotalBytes();
    for (const ArgumentVariables* variables : owners) {
      if (variables == nullptr || (*variables)[argument] == nullptr) return false;
    }
  }
  return bytes >= kMinBytes;
}

absl::Status RunInPlace(Program& program, const CoreContext& core, UpdatedVariables updated,
                        absl::Span<const ArgumentVariables* const> owners, Arguments arguments,
                        RunOptions options, Outputs* outputs) {
  tsl::profiler::TraceMe trace("TPU update in place");
  std::set<Var*> variables;
  ForEachVariable(updated, owners,
                  [&](Var* variable, ArgumentNumber, OutputNumber) { variables.insert(variable); });
  VariableLocks locks(std::move(variables));
  // Nobody else uses a buffer to which only the variables refer now.
  std::vector<Var*> taken;
  ForEachVariable(updated, owners, [&](Var* variable, ArgumentNumber argument, OutputNumber) {
    if (variable->tensor()->data() != arguments[argument].data()) return;
    *variable->tensor() = Tensor(arguments[argument].dtype());
    taken.push_back(variable);
  });
  options.on_one_thread = program.typical_run() < kWorthAThread;
  for (const auto& [argument, output] : updated) {
    if (arguments[argument].RefCountIsOne()) options.overwritable.push_back(argument);
  }
  absl::Status result;
  absl::Notification ended;
  program.Start(core, arguments, std::move(options), [&](absl::Status status, Outputs values) {
    result = std::move(status);
    *outputs = std::move(values);
    ended.Notify();
  });
  ended.WaitForNotification();
  ForEachVariable(updated, owners,
                  [&](Var* variable, ArgumentNumber argument, OutputNumber output) {
                    if (result.ok()) {
                      *variable->tensor() = (*outputs)[output];
                    } else if (absl::c_linear_search(taken, variable)) {
                      *variable->tensor() = arguments[argument];
                    }
                  });
  return result;
}

}  // namespace tf_tpu_ext
