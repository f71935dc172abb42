// The custom calls to which ops that communicate with the host are compiled.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cc/base/op_testing.h"
#include "cc/base/tensor_testing.h"
#include "cc/ops/op_names.h"
#include "cc/program/host_call.h"
#include "cc/program/transfer_call.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/partial_tensor_shape.h"
#include "tensorflow/core/framework/tensor.h"
#include "xla/service/hlo.pb.h"
#include "xla/xla_data.pb.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::DataTypeVector;
using tensorflow::PartialTensorShape;
using tensorflow::Tensor;

PartialTensorShape Shape(const std::vector<int64_t>& sizes) { return PartialTensorShape(sizes); }

// The only call with that target in a compiled op.
absl::StatusOr<xla::HloInstructionProto> CallOf(OpTester& op, const std::string& target) {
  const auto compiled = op.Compile();
  if (!compiled.ok()) return compiled.status();
  std::optional<xla::HloInstructionProto> found;
  for (const auto& computation : (*compiled)->computation->proto().computations()) {
    for (const auto& instruction : computation.instructions()) {
      if (instruction.custom_call_target() != target) continue;
      EXPECT_FALSE(found.has_value());
      found = instruction;
    }
  }
  if (!found.has_value()) return absl::NotFoundError("no call of " + target);
  // No pass may drop it, or reorder it: it takes and returns a token.
  EXPECT_TRUE(found->custom_call_has_side_effect());
  EXPECT_EQ(found->shape().element_type(), xla::TUPLE);
  EXPECT_EQ(found->shape().tuple_shapes().rbegin()->element_type(), xla::TOKEN);
  return *found;
}

TransferCall TransferOf(OpTester& op) {
  const auto call = CallOf(op, kTransferTarget);
  EXPECT_TRUE(call.ok()) << call.status();
  if (!call.ok()) return {};
  auto transfer = DecodeTransferCall(call->backend_config());
  EXPECT_TRUE(transfer.ok()) << transfer.status();
  return *std::move(transfer);
}

TEST(TransferXlaKernelsTest, FeedsNameTheirChannels) {
  OpTester dequeue("InfeedDequeueTuple");
  dequeue.Attr("dtypes", DataTypeVector{tensorflow::DT_FLOAT, tensorflow::DT_INT32});
  dequeue.Attr("shapes", std::vector<PartialTensorShape>{Shape({2, 3}), Shape({})});
  const auto call = CallOf(dequeue, kTransferTarget);
  ASSERT_TRUE(call.ok()) << call.status();
  ASSERT_EQ(call->shape().tuple_shapes_size(), 3);
  EXPECT_EQ(call->shape().tuple_shapes(0).element_type(), xla::F32);
  EXPECT_EQ(call->shape().tuple_shapes(1).element_type(), xla::S32);
  const auto transfer = DecodeTransferCall(call->backend_config());
  ASSERT_TRUE(transfer.ok()) << transfer.status();
  EXPECT_TRUE(transfer->is_infeed());
  EXPECT_EQ(transfer->op, "the_op");
  EXPECT_EQ(transfer->send, "");
  EXPECT_EQ(transfer->member, std::nullopt);

  OpTester enqueue("OutfeedEnqueue");
  enqueue.Input(MakeVector<float>({1, 2}));
  EXPECT_TRUE(TransferOf(enqueue).is_outfeed());
}

TEST(TransferXlaKernelsTest, SendAndReceiveNameTheirKeys) {
  OpTester send("XlaSendToHost");
  send.Input(MakeVector<float>({1, 2})).Attr("key", "to_host");
  const TransferCall sent = TransferOf(send);
  EXPECT_EQ(sent.send, "to_host");
  EXPECT_EQ(sent.receive, "");
  OpTester receive("XlaRecvFromHost");
  receive.Attr("Toutput", tensorflow::DT_FLOAT).Attr("shape", Shape({4}));
  receive.Attr("key", "from_host");
  const TransferCall received = TransferOf(receive);
  EXPECT_EQ(received.send, "");
  EXPECT_EQ(received.receive, "from_host");
}

TEST(TransferXlaKernelsTest, DynamicDimensionsComeWithTheirSizes) {
  OpTester enqueue("OutfeedEnqueue");
  enqueue.DynamicInput(MakeTensor<float>({1, 2, 3, 4, 5, 6}, {2, 3}), 1, 2);
  const auto call = CallOf(enqueue, kTransferTarget);
  ASSERT_TRUE(call.ok()) << call.status();
  // The padded tensor, the size and the token.
  EXPECT_EQ(call->operand_ids_size(), 3);
  const auto transfer = DecodeTransferCall(call->backend_config());
  ASSERT_TRUE(transfer.ok()) << transfer.status();
  EXPECT_EQ(transfer->dynamic, std::vector<DynamicDimension>({{0, 1}}));
}

OpTester HostCompute(const std::vector<PartialTensorShape>& shapes) {
  OpTester op(kHostComputeOp);
  op.InputList({MakeScalar<float>(1)});
  op.Attr("Tinputs", DataTypeVector{tensorflow::DT_FLOAT});
  op.Attr("Toutputs", DataTypeVector(shapes.size(), tensorflow::DT_FLOAT));
  op.Attr("shapes", shapes).Attr("send_key", "args").Attr("recv_key", "results");
  op.Attr("manual_sharding", false).Attr("counted_as", "loop").Attr("counts_call", false);
  return op;
}

TEST(TransferXlaKernelsTest, ClustersInTheHostGraphSendAndReceive) {
  OpTester with_result = HostCompute({Shape({2})});
  const TransferCall call = TransferOf(with_result);
  EXPECT_EQ(call.send, "args");
  EXPECT_EQ(call.receive, "results");
  EXPECT_EQ(call.counted_as, "loop");
  EXPECT_FALSE(call.counts_call);
  // Nothing waits for a cluster without results.
  OpTester without = HostCompute({});
  EXPECT_EQ(TransferOf(without).receive, "");
}

TEST(TransferXlaKernelsTest, ResultsNeedStaticShapes) {
  OpTester op = HostCompute({Shape({-1})});
  const absl::Status status = op.Compile().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("Wrap what the host function returns in tf.ensure_shape."),
            std::string::npos)
      << status;
  OpTester dequeue("InfeedDequeue");
  dequeue.Attr("dtype", tensorflow::DT_FLOAT).Attr("shape", PartialTensorShape());
  EXPECT_NE(dequeue.Compile().status().message().find("Give the infeed queue or op static shapes."),
            std::string::npos);
}

TEST(TransferXlaKernelsTest, AShapeWhoseBytesCannotBeCountedIsAnError) {
  OpTester dequeue("InfeedDequeue");
  constexpr int64_t kHuge = int64_t{1} << 31;
  dequeue.Attr("dtype", tensorflow::DT_DOUBLE).Attr("shape", Shape({kHuge, kHuge}));
  EXPECT_EQ(dequeue.Compile().status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(TransferXlaKernelsTest, FoldedClustersCallTheirFunction) {
  OpTester op(kHostCallOp);
  op.InputList({MakeScalar<float>(1)}).Attr("Tinputs", DataTypeVector{tensorflow::DT_FLOAT});
  op.Attr("Toutputs", DataTypeVector{tensorflow::DT_FLOAT});
  op.Attr("shapes", std::vector<PartialTensorShape>{Shape({})}).Attr(kHostFunctionNumber, 3);
  op.Attr("function", "f").Attr("library", "");
  const auto call = CallOf(op, kHostCallTarget);
  ASSERT_TRUE(call.ok()) << call.status();
  const auto attributes = CallAttributes::Parse(call->backend_config());
  ASSERT_TRUE(attributes.ok()) << attributes.status();
  const auto host_call = DecodeHostCall(*attributes);
  ASSERT_TRUE(host_call.ok()) << host_call.status();
  EXPECT_EQ(host_call->function, 3);
  EXPECT_EQ(host_call->op, "the_op");
  EXPECT_TRUE(host_call->dynamic.empty());
}

}  // namespace
}  // namespace tf_tpu_ext
