#include "cc/pods/pod.h"

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/util/device_name_utils.h"

namespace tf_tpu_ext {
namespace {

constexpr char kHost[] = "_tpu_ext_pod_host";
constexpr char kCoresPerHost[] = "_tpu_ext_pod_cores_per_host";
constexpr char kCpus[] = "_tpu_ext_pod_cpus";
// Stored as signed numbers: attributes have no unsigned ones.
constexpr char kIncarnations[] = "_tpu_ext_pod_incarnations";

}  // namespace

bool HasPod(tensorflow::AttrSlice attributes) { return attributes.Find(kHost) != nullptr; }

void AddPod(const Pod& pod, tensorflow::Node* node) {
  std::vector<std::string> cpus;
  std::vector<int64_t> incarnations;
  for (const Pod::Member& member : pod.members) {
    cpus.push_back(member.cpu);
    incarnations.push_back(static_cast<int64_t>(member.incarnation));
  }
  node->AddAttr(kHost, pod.shape.host.value());
  node->AddAttr(kCoresPerHost, pod.shape.cores_per_host);
  node->AddAttr(kCpus, cpus);
  node->AddAttr(kIncarnations, incarnations);
}

absl::StatusOr<Pod> PodOf(tensorflow::AttrSlice attributes) {
  int64_t host = 0, cores_per_host = 0;
  std::vector<std::string> cpus;
  std::vector<int64_t> incarnations;
  TF_RETURN_IF_ERROR(tensorflow::GetNodeAttr(attributes, kHost, &host));
  TF_RETURN_IF_ERROR(tensorflow::GetNodeAttr(attributes, kCoresPerHost, &cores_per_host));
  TF_RETURN_IF_ERROR(tensorflow::GetNodeAttr(attributes, kCpus, &cpus));
  TF_RETURN_IF_ERROR(tensorflow::GetNodeAttr(attributes, kIncarnations, &incarnations));
  constexpr int64_t kMost = 1 << 20;
  const auto hosts = static_cast<int64_t>(cpus.size());
  if (hosts < 2 || hosts > kMost || incarnations.size() != cpus.size() || host < 0 ||
      host >= hosts || cores_per_host < 1 || cores_per_host > kMost / hosts) {
    return absl::InvalidArgumentError(
        absl::StrCat("The graph says that host ", host, " of ", hosts, " with ", cores_per_host,
                     " cores each runs this op, and has ", incarnations.size(),
                     " incarnations. The graph is damaged."));
  }
  Pod pod;
  pod.shape.hosts = static_cast<int>(hosts);
  pod.shape.host = Host(static_cast<int>(host));
  pod.shape.cores_per_host = static_cast<int>(cores_per_host);
  for (size_t i = 0; i < cpus.size(); ++i) {
    pod.members.Add({std::move(cpus[i]), static_cast<uint64_t>(incarnations[i])});
  }
  return pod;
}

std::string NameOfHost(const Pod::Member& member) {
  std::string task, device;
  if (!tensorflow::DeviceNameUtils::SplitDeviceName(member.cpu, &task, &device)) return member.cpu;
  return task;
}

}  // namespace tf_tpu_ext
