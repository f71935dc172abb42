// The configurations of all custom calls: each is read as it was written.
#include <string>
#include <vector>

#include "cc/program/dynamic_dimensions.h"
#include "cc/program/embedding_call.h"
#include "cc/program/host_call.h"
#include "cc/program/kernel_call.h"
#include "cc/program/transfer_call.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/node_def.pb.h"

namespace tf_tpu_ext {
namespace {

CallAttributes AttributesOf(const std::string& config) {
  auto attributes = CallAttributes::Parse(config);
  EXPECT_TRUE(attributes.ok()) << attributes.status();
  return *attributes;
}

// Every configuration without one of its attributes, which a program of another version may bring.
std::vector<CallAttributes> WithoutEach(const std::string& config,
                                        const std::vector<std::string>& names) {
  std::vector<CallAttributes> all;
  for (const std::string& left_out : names) {
    const CallAttributes whole = AttributesOf(config);
    CallAttributes rest;
    for (const std::string& name : names) {
      if (name == left_out) continue;
      if (const auto text = whole.GetString(name); text.ok()) {
        rest.SetString(name, *text);
      } else {
        rest.SetInteger(name, *whole.GetInteger(name));
      }
    }
    all.push_back(rest);
  }
  return all;
}

TEST(DynamicDimensionsTest, TextAndBack) {
  EXPECT_EQ(EncodeDynamicDimensions({}), "");
  EXPECT_TRUE(DecodeDynamicDimensions("")->empty());
  const std::vector<DynamicDimension> dynamic = {{0, 1}, {2, 0}, {2, 13}};
  EXPECT_EQ(EncodeDynamicDimensions(dynamic), "0:1,2:0,2:13");
  EXPECT_EQ(*DecodeDynamicDimensions("0:1,2:0,2:13"), dynamic);
  for (const char* text : {"1", "1:", ":1", "1:x", "-1:0", "0:-1", "0:1;2:0"}) {
    EXPECT_EQ(DecodeDynamicDimensions(text).status().code(), absl::StatusCode::kInternal) << text;
  }
}

TEST(HostCallTest, IsReadAsWritten) {
  HostCall call;
  call.op = "cluster \"0\"";
  call.function = 3;
  call.dynamic = {{1, 0}};
  const auto read = DecodeHostCall(AttributesOf(Encode(call)));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->op, call.op);
  EXPECT_EQ(read->function, 3);
  EXPECT_EQ(read->dynamic, call.dynamic);
  for (const auto& rest : WithoutEach(Encode(call), {"dynamic", "function", "op"})) {
    EXPECT_FALSE(DecodeHostCall(rest).ok()) << rest.ToText();
  }
}

TEST(TransferCallTest, IsReadAsWritten) {
  TransferCall call;
  call.op = "cluster";
  call.send = "args";
  call.receive = "results";
  call.dynamic = {{0, 0}, {0, 1}};
  call.counted_as = "cluster of the loop";
  call.counts_call = false;
  call.member = 5;
  const auto read = DecodeTransferCall(Encode(call));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->op, "cluster");
  EXPECT_EQ(read->send, "args");
  EXPECT_EQ(read->receive, "results");
  EXPECT_EQ(read->dynamic, call.dynamic);
  EXPECT_EQ(read->counted_as, "cluster of the loop");
  EXPECT_FALSE(read->counts_call);
  EXPECT_EQ(read->member, 5);
  call.member.reset();
  EXPECT_EQ(DecodeTransferCall(Encode(call))->member, std::nullopt);
  for (const auto& rest : WithoutEach(
           Encode(call), {"counted_as", "counts_call", "dynamic", "op", "receive", "send"})) {
    EXPECT_FALSE(DecodeTransferCall(rest).ok()) << rest.ToText();
  }
  EXPECT_FALSE(DecodeTransferCall("no configuration").ok());
}

TEST(TransferCallTest, OneFieldIsChanged) {
  TransferCall call;
  call.op = "dequeue, member = 7 : i64}";
  call.receive = kInfeedName;
  absl::StatusOr<TransferCall> changed = DecodeTransferCall(Encode(call));
  ASSERT_TRUE(changed.ok());
  EXPECT_EQ(changed->member, std::nullopt);
  changed->member = 2;
  const auto read = DecodeTransferCall(Encode(*changed));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->member, 2);
  EXPECT_EQ(read->op, call.op);
}

TEST(TransferCallTest, FeedsAreKnownByTheirChannels) {
  TransferCall call;
  call.receive = kInfeedName;
  EXPECT_TRUE(call.is_infeed());
  EXPECT_FALSE(call.is_outfeed());
  call = TransferCall();
  call.send = kOutfeedName;
  EXPECT_FALSE(call.is_infeed());
  EXPECT_TRUE(call.is_outfeed());
  call = TransferCall();
  call.op = "infeed";
  call.send = "send = \"outfeed\"";
  EXPECT_FALSE(call.is_infeed());
  EXPECT_FALSE(call.is_outfeed());
}

TEST(KernelCallTest, IsReadAsWritten) {
  KernelCall call;
  call.op = "MaxPoolGrad";
  call.name = "model/pool grad";
  call.node.set_name("pool");
  call.node.set_op("_MklNativeMaxPoolGrad");
  (*call.node.mutable_attr())["padding"].set_s("SAME");
  (*call.node.mutable_attr())["T"].set_type(tensorflow::DT_FLOAT);
  call.before = call.node;
  call.before->set_op("_MklNativeMaxPool");
  call.work = 1'000'000'000'000;
  const auto read = DecodeKernelCall(Encode(call));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->op, "MaxPoolGrad");
  EXPECT_EQ(read->name, "model/pool grad");
  EXPECT_EQ(read->node.DebugString(), call.node.DebugString());
  ASSERT_TRUE(read->before.has_value());
  EXPECT_EQ(read->before->DebugString(), call.before->DebugString());
  EXPECT_EQ(read->work, 1'000'000'000'000);
  // Equal calls have equal texts: the order in a proto's map is not theirs.
  EXPECT_EQ(Encode(*read), Encode(call));
  call.before.reset();
  EXPECT_FALSE(DecodeKernelCall(Encode(call))->before.has_value());
  for (const auto& rest : WithoutEach(Encode(call), {"name", "node", "op", "work"})) {
    EXPECT_FALSE(DecodeKernelCall(rest).ok()) << rest.ToText();
  }
}

TEST(KernelCallTest, RefusesWhatIsNoNode) {
  CallAttributes attributes = AttributesOf(Encode(KernelCall{"Conv2D", "conv"}));
  attributes.SetString("node", "%");
  const absl::Status status = DecodeKernelCall(attributes).status();
  EXPECT_EQ(status.message(), "Expected a kernel's node; got '%'.");
}

TEST(EmbeddingCallsTest, AreReadAsWritten) {
  EXPECT_EQ(
      DecodeReceiveActivationsCall(AttributesOf(Encode(ReceiveActivationsCall{"receive"})))->op,
      "receive");
  EXPECT_FALSE(DecodeReceiveActivationsCall(CallAttributes()).ok());
  const SendGradientsCall call{"send", 4};
  const auto read = DecodeSendGradientsCall(AttributesOf(Encode(call)));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->op, "send");
  EXPECT_EQ(read->num_gradients, 4);
  for (const auto& rest : WithoutEach(Encode(call), {"gradients", "op"})) {
    EXPECT_FALSE(DecodeSendGradientsCall(rest).ok()) << rest.ToText();
  }
}

}  // namespace
}  // namespace tf_tpu_ext
