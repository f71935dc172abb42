// Settings and records as JSON, for Python to read.
#ifndef TF_TPU_EXT_CC_DESCRIBE_DESCRIBE_H_
#define TF_TPU_EXT_CC_DESCRIBE_DESCRIBE_H_

#include <vector>

#include "cc/base/fault_points.h"
#include "cc/base/json.h"
#include "cc/base/machine.h"
#include "cc/base/slow_notice.h"
#include "cc/check/findings.h"
#include "cc/program/compilation_record.h"
#include "cc/program/target_program.h"
#include "cc/runtime/collective_table.h"
#include "cc/runtime/first_launches.h"
#include "cc/runtime/launch_table.h"
#include "cc/runtime/padding_stats.h"
#include "cc/transfer/transfer_stats.h"

namespace tf_tpu_ext {

JsonObject Describe(const MachineOptions& options);
JsonObject Describe(const RecordedArgument& argument);
JsonObject Describe(const ProgramNote& note);
JsonObject Describe(const CompilationRecord& record);
JsonObject Describe(const ClusterRecord& record);
JsonObject Describe(const Finding& finding);
JsonObject Describe(const PaddedInput& input);
JsonObject Describe(const CoreWaits& waits);
JsonObject Describe(const CollectiveTotals& totals);
JsonObject Describe(const TimedRun& run);
JsonObject Describe(const TimedLaunch& launch);
JsonObject Describe(const CollectiveMeeting& meeting);
JsonObject Describe(const FaultCounts& counts);
JsonObject Describe(const TargetProgram& program);
JsonObject Describe(const Ongoing& ongoing);
// What is going on: how many launches have ended, the oldest one in progress, waits in it that have
// lasted for at least `age`, and what is being compiled.
JsonObject DescribeProgress(absl::Duration age);

template <class Records>
std::vector<JsonObject> DescribeAll(const Records& records) {
  std::vector<JsonObject> objects;
  for (const auto& record : records) objects.push_back(Describe(record));
  return objects;
}

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_DESCRIBE_DESCRIBE_H_
