#include "cc/ops/host_update_ops.h"

#include <algorithm>
#include <iterator>

#include "absl/base/call_once.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tensorflow/core/framework/op.h"

namespace tf_tpu_ext {
namespace {

constexpr char kPrefix[] = "TpuExt>";

// The updates that the bridge splits, and the other scatter ops. The bridge would turn an
// assignment in a branch into one of all replicas' values, of which only the first replica's
// counts.
constexpr const char* kUpdates[] = {
    "AssignVariableOp",
    "AssignAddVariableOp",
    "AssignSubVariableOp",
    "ResourceApplyAdagrad",
    "ResourceApplyAdagradV2",
    "ResourceApplyAdam",
    "ResourceApplyCenteredRMSProp",
    "ResourceApplyFtrl",
    "ResourceApplyFtrlV2",
    "ResourceApplyGradientDescent",
    "ResourceApplyKerasMomentum",
    "ResourceApplyMomentum",
    "ResourceApplyProximalAdagrad",
    "ResourceApplyRMSProp",
    "ResourceScatterAdd",
    "ResourceScatterDiv",
    "ResourceScatterMax",
    "ResourceScatterMin",
    "ResourceScatterMul",
    "ResourceScatterSub",
    "ResourceScatterUpdate",
};

void RegisterAll() {
  tensorflow::OpRegistry* registry = tensorflow::OpRegistry::Global();
  for (const char* update : kUpdates) {
    const tensorflow::OpRegistrationData* original = registry->LookUp(update);
    if (original == nullptr) continue;
    tensorflow::OpRegistrationData copy = *original;
    copy.op_def.set_name(HostUpdateOverride(update));
    // An op without outputs exists only for its effect.
    copy.op_def.set_is_stateful(true);
    registry->Register([copy](tensorflow::OpRegistrationData* data) {
      *data = copy;
      return absl::OkStatus();
    });
  }
}

}  // namespace

void RegisterHostUpdates() {
  static absl::once_flag once;
  absl::call_once(once, RegisterAll);
}

bool IsHostUpdate(const std::string& op) {
  return std::find(std::begin(kUpdates), std::end(kUpdates), op) != std::end(kUpdates);
}

std::string HostUpdateOverride(const std::string& op) { return absl::StrCat(kPrefix, op); }

std::string OriginalOfHostUpdate(const std::string& op) {
  absl::string_view original = op;
  if (!absl::ConsumePrefix(&original, kPrefix)) return "";
  const std::string name(original);
  return IsHostUpdate(name) ? name : "";
}

}  // namespace tf_tpu_ext
