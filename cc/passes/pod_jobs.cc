#include "cc/passes/pod_jobs.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cc/device/virtual_device.h"
#include "tensorflow/core/framework/device.h"

namespace tf_tpu_ext {

using tensorflow::DeviceNameUtils;
using ParsedName = DeviceNameUtils::ParsedName;

std::optional<Host> PodJob::HostOf(const ParsedName& device) const {
  for (Host host : names.numbers()) {
    if (device.has_task && device.task == names[host].task) return host;
  }
  return std::nullopt;
}

absl::Status PodJob::CheckCores() const {
  for (Host host : cores.numbers()) {
    if (cores[host] == cores[Host(0)]) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("The workers of a pod need the same number of cores; they have ",
                     absl::StrJoin(cores, ", "), " (", NameOfHost(pod.members[Host(0)]),
                     " has the first). Start each by tf-tpu worker --cores=", cores[Host(0)]));
  }
  return absl::OkStatus();
}

Pod PodJob::For(Host host) const {
  Pod result = pod;
  result.shape.host = host;
  return result;
}

std::map<std::string, PodJob> PodJobsOf(const tensorflow::DeviceSet& devices) {
  std::map<std::tuple<std::string, int, int>, int> cores_of;
  std::vector<ParsedName> systems;
  for (const tensorflow::Device* device : devices.devices()) {
    const ParsedName& name = device->parsed_name();
    if (device->device_type() == kTpuSystemDeviceType && name.id == 0) systems.push_back(name);
    if (device->device_type() == kTpuDeviceType) ++cores_of[{name.job, name.replica, name.task}];
  }
  std::sort(systems.begin(), systems.end(), [](const ParsedName& a, const ParsedName& b) {
    return std::tie(a.job, a.replica, a.task) < std::tie(b.job, b.replica, b.task);
  });
  std::map<std::string, PodJob> jobs;
  for (const ParsedName& system : systems) {
    ParsedName cpu = system;
    cpu.type = tensorflow::DEVICE_CPU;
    Pod::Member member;
    member.cpu = DeviceNameUtils::ParsedNameToString(cpu);
    const tensorflow::Device* device = devices.FindDeviceByName(member.cpu);
    if (device == nullptr) continue;
    member.incarnation = device->attributes().incarnation();
    PodJob& job = jobs[system.job];
    job.pod.members.Add(std::move(member));
    job.names.Add(system);
    job.cores.Add(cores_of[{system.job, system.replica, system.task}]);
  }
  for (auto it = jobs.begin(); it != jobs.end();) {
    PodJob& job = it->second;
    job.pod.shape.hosts = job.names.size();
    job.pod.shape.cores_per_host = job.cores[Host(0)];
    it =
        job.pod.shape.is_pod() && job.pod.shape.cores_per_host > 0 ? std::next(it) : jobs.erase(it);
  }
  return jobs;
}

}  // namespace tf_tpu_ext
