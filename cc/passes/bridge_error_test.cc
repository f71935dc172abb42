#include "cc/passes/bridge_error.h"

#include <string>

#include "absl/status/status.h"
#include "cc/base/machine.h"
#include "cc/base/process.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

TEST(BridgeErrorTest, NamesNodesOfASession) {
  const absl::Status status = ExplainBridgeError(absl::UnknownError(
      R"(<unknown>:0: error: loc(fused["AsString:", "made_here"]): 'tf.AsString' op isn't compilable for TPU device. enable soft_device_placement option to run on CPU
<unknown>:0: note: loc(fused["AsString:", "made_here"]): see current operation: %3 = "tf.AsString"(%arg2)
<unknown>:0: error: loc(fused["StringLength:", "length"]): 'tf.StringLength' op isn't compilable for TPU device. enable soft_device_placement option to run on CPU)"));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("ops that a TPU cannot run: AsString {{node made_here}}, "
                                  "StringLength {{node length}}. "),
            std::string::npos)
      << status;
}

TEST(BridgeErrorTest, NamesLinesOfAFunctionOnce) {
  const std::string line =
      "train/step.py:6:1: error: 'tf.AsString' op TF/XLA TPU bridge input check: found invalid "
      "op. Can't be both xla and non-xla\ntry: step(x)\n^\n";
  const absl::Status status = ExplainBridgeError(absl::UnknownError(line + line));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("an op that a TPU cannot run: AsString (train/step.py:6). "),
            std::string::npos)
      << status;
  EXPECT_NE(status.message().find("outside_compilation"), std::string::npos);
  EXPECT_EQ(status.message().find("soft_placement"), std::string::npos);
}

TEST(BridgeErrorTest, AsksWhereAnOpIs) {
  const absl::Status status = ExplainBridgeError(
      absl::UnknownError("<frozen runpy>:198:1: error: 'tf.AsString' op TF/XLA TPU bridge input "
                         "check: found invalid op. Can't be both xla and non-xla"),
      [](const std::string& type) { return type == "AsString" ? "text (step.py:3)" : ""; });
  EXPECT_NE(status.message().find("cannot run: AsString text (step.py:3)."), std::string::npos)
      << status;
}

TEST(BridgeErrorTest, KnowsWhatReplacesInfeedDequeue) {
  const absl::Status status = ExplainBridgeError(absl::UnknownError(
      "<unknown>:0: error: loc(fused[\"InfeedDequeue:\", \"fed\"]): 'tf.InfeedDequeue' op isn't "
      "compilable for TPU device. enable soft_device_placement option to run on CPU"));
  EXPECT_NE(status.message().find("{{node fed}}"), std::string::npos) << status;
  EXPECT_NE(status.message().find("InfeedDequeueTuple"), std::string::npos);
}

TEST(BridgeErrorTest, LeavesOthersAlone) {
  EXPECT_EQ(ExplainBridgeError(absl::OkStatus()), absl::OkStatus());
  const absl::Status other = absl::InternalError("a.py:1:1: error: 'tf.AddV2' op has no type");
  EXPECT_EQ(ExplainBridgeError(other), other);
}

TEST(BridgeErrorTest, TellsHowManyCoresThereAre) {
  static auto* const process = new Process;
  process->machine = new Machine;
  Process::Install(process);
  const absl::Status replicas = ExplainBridgeError(absl::UnknownError(
      "train.py:1:1: error: error in fetching TPU compilation/execution devices: 'num_replicas' "
      "must be equal to 1 or 8, got 32\nmore"));
  EXPECT_EQ(replicas.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(replicas.message().find("has 32 replicas; there are only 8 cores in the TPU topology"),
            std::string::npos)
      << replicas;
  const absl::Status tasks = ExplainBridgeError(absl::UnknownError(
      "error in fetching TPU compilation/execution devices: number of tasks from available TPU "
      "devices must be 'num_tasks' in 'topology' (4), got 1"));
  EXPECT_EQ(tasks.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(tasks.message().find("there are only 8 cores"), std::string::npos) << tasks;
}

}  // namespace
}  // namespace tf_tpu_ext
