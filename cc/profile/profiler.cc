#include "cc/profile/profiler.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cc/profile/core_planes.h"
#include "cc/profile/machine_rates.h"
#include "cc/profile/thunk_events.h"
#include "tsl/profiler/lib/profiler_factory.h"
#include "tsl/profiler/lib/profiler_interface.h"
#include "tsl/profiler/protobuf/profiler_options.pb.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::ProfileOptions;

class Profiler : public tsl::profiler::ProfilerInterface {
 public:
  Profiler(ProfileRecorder* recorder, const Machine* machine)
      : recorder_(*recorder), machine_(*machine) {}
  ~Profiler() override { recorder_.Stop(); }

  absl::Status Start() override {
    recorder_.Start();
    return absl::OkStatus();
  }

  absl::Status Stop() override {
    recorder_.Stop();
    return absl::OkStatus();
  }

  // TensorFlow's own profilers were registered before this one, so the space already contains what
  // XLA reported.
  absl::Status CollectData(tensorflow::profiler::XSpace* space) override {
    const Recording recording = recorder_.Take();
    if (recording.runs.empty()) return absl::OkStatus();
    if (recording.dropped > 0) {
      space->add_warnings(absl::StrCat(
          "The profile lasted too long for all that the TPU cores did: it lacks the last ",
          recording.dropped, " runs and waits. Profile fewer steps."));
    }
    const int64_t origin = FirstBegin(recording);
    AddCorePlanes(recording, ReadThunkEvents(*space, origin), origin, Describe(machine_.options()),
                  space);
    return absl::OkStatus();
  }

 private:
  static MachineDescription Describe(const MachineOptions& options) {
    // Only once: it takes some time, and the machine stays the same.
    static const MachineRates rates = MeasureMachine();
    MachineDescription description;
    description.cores = options.cores;
    description.cores_per_chip = MeshShape(options)[3];
    description.rates = rates;
    return description;
  }

  ProfileRecorder& recorder_;
  const Machine& machine_;
};

bool WantsCores(const ProfileOptions& options) {
  return options.device_tracer_level() > 0 &&
         (options.device_type() == ProfileOptions::UNSPECIFIED ||
          options.device_type() == ProfileOptions::TPU);
}

}  // namespace

void RegisterProfiler(ProfileRecorder* recorder, const Machine* machine) {
  tsl::profiler::RegisterProfilerFactory(
      [=](const ProfileOptions& options) -> std::unique_ptr<tsl::profiler::ProfilerInterface> {
        if (!WantsCores(options)) return nullptr;
        return std::make_unique<Profiler>(recorder, machine);
      });
}

}  // namespace tf_tpu_ext
