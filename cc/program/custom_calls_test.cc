// The configurations of all custom calls: each is read as it was written.
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "cc/base/call_attributes.h"
#include "cc/program/dynamic_dimensions.h"
#include "cc/program/embedding_call.h"
#include "cc/program/host_call.h"
#include "cc/program/kernel_call.h"
#include "cc/program/probe_call.h"
#include "cc/program/sparse_core_call.h"
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

// The configuration without each of its attributes in turn; a program of another version may lack
// one.
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

// The configuration with each of its attributes in turn changed to the other type.
std::vector<CallAttributes> WithEachOfAnotherType(const std::string& config,
                                                  const std::vector<std::string>& names) {
  std::vector<CallAttributes> all;
  for (const std::string& name : names) {
    CallAttributes changed = AttributesOf(config);
    if (changed.GetString(name).ok()) {
      changed.SetInteger(name, 1);
    } else {
      changed.SetString(name, "1");
    }
    all.push_back(std::move(changed));
  }
  return all;
}

// The configuration with numbers that are not valid counts.
std::vector<CallAttributes> WithBadCounts(const std::string& config, const std::string& name) {
  std::vector<CallAttributes> all;
  for (const int64_t count : {int64_t{-1}, int64_t{1} << 31, std::numeric_limits<int64_t>::min()}) {
    CallAttributes changed = AttributesOf(config);
    changed.SetInteger(name, count);
    all.push_back(std::move(changed));
  }
  return all;
}

// Texts that would end an attribute, or look like another one, if they were not quoted.
const std::vector<std::string>& HardTexts() {
  static const auto* const texts = new std::vector<std::string>{"",
                                                                "\"",
                                                                "\\",
                                                                "a\\\"",
                                                                "}, member = 7 : i64}",
                                                                "line\nbreak",
                                                                "\xc3\xa9\x01",
                                                                "op = \"x\", "};
  return *texts;
}

const char* const kGarbage[] = {"",
                                "{",
                                "}",
                                "no configuration",
                                "{op}",
                                "{op = }",
                                "{op = \"x}",
                                "{op = 1}",
                                "{op = \"x\" member = 1 : i64}"};

TEST(DynamicDimensionsTest, TextAndBack) {
  EXPECT_EQ(EncodeDynamicDimensions({}), "");
  EXPECT_TRUE(DecodeDynamicDimensions("")->empty());
  const std::vector<DynamicDimension> dynamic = {{0, 1}, {2, 0}, {2, 13}};
  EXPECT_EQ(EncodeDynamicDimensions(dynamic), "0:1,2:0,2:13");
  EXPECT_EQ(*DecodeDynamicDimensions("0:1,2:0,2:13"), dynamic);
  for (const char* text : {"1", "1:", ":1", "1:x", "-1:0", "0:-1", "0:1;2:0", "1:2:3", ",", "0:1,",
                           "0:1,,2:0", "0:99999999999"}) {
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

TEST(HostCallTest, RefusesWhatItDidNotWrite) {
  HostCall call;
  call.op = "cluster";
  call.function = 3;
  const std::string config = Encode(call);
  for (const auto& changed : WithEachOfAnotherType(config, {"dynamic", "function", "op"})) {
    EXPECT_EQ(DecodeHostCall(changed).status().code(), absl::StatusCode::kInternal)
        << changed.ToText();
  }
  for (const auto& changed : WithBadCounts(config, "function")) {
    const absl::Status status = DecodeHostCall(changed).status();
    EXPECT_TRUE(absl::StrContains(status.message(), "count 'function'")) << status;
  }
  CallAttributes changed = AttributesOf(config);
  changed.SetString("dynamic", "0:1:2");
  EXPECT_TRUE(absl::StrContains(DecodeHostCall(changed).status().message(), "'0:1:2'"));
}

TEST(HostCallTest, TextsMayHoldAnything) {
  for (const std::string& text : HardTexts()) {
    HostCall call;
    call.op = text;
    const auto read = DecodeHostCall(AttributesOf(Encode(call)));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->op, text);
    EXPECT_EQ(read->function, 0);
    EXPECT_TRUE(read->dynamic.empty());
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

TEST(TransferCallTest, RefusesWhatItDidNotWrite) {
  TransferCall call;
  call.op = "cluster";
  call.member = 5;
  const std::string config = Encode(call);
  for (const auto& changed : WithEachOfAnotherType(
           config, {"counted_as", "counts_call", "dynamic", "member", "op", "receive", "send"})) {
    EXPECT_EQ(DecodeTransferCall(changed).status().code(), absl::StatusCode::kInternal)
        << changed.ToText();
  }
  for (const auto& changed : WithBadCounts(config, "member")) {
    const absl::Status status = DecodeTransferCall(changed).status();
    EXPECT_TRUE(absl::StrContains(status.message(), "count 'member'")) << status;
  }
  for (const char* text : kGarbage) {
    EXPECT_EQ(DecodeTransferCall(text).status().code(), absl::StatusCode::kInternal) << text;
  }
}

TEST(TransferCallTest, TextsMayHoldAnything) {
  for (const std::string& text : HardTexts()) {
    TransferCall call;
    call.op = text;
    call.send = "s" + text;
    call.receive = "r" + text;
    call.counted_as = "c" + text;
    const auto read = DecodeTransferCall(Encode(call));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->op, text);
    EXPECT_EQ(read->send, "s" + text);
    EXPECT_EQ(read->receive, "r" + text);
    EXPECT_EQ(read->counted_as, "c" + text);
    EXPECT_EQ(read->member, std::nullopt);
    EXPECT_TRUE(read->counts_call);
  }
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
  // Equal calls have equal texts, even though the order in a proto's map may differ.
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

TEST(KernelCallTest, RefusesWhatItDidNotWrite) {
  KernelCall call{"Conv2D", "conv"};
  call.before = call.node;
  const std::string config = Encode(call);
  for (const auto& changed :
       WithEachOfAnotherType(config, {"before", "name", "node", "op", "work"})) {
    EXPECT_EQ(DecodeKernelCall(changed).status().code(), absl::StatusCode::kInternal)
        << changed.ToText();
  }
  for (const char* text : kGarbage) {
    EXPECT_EQ(DecodeKernelCall(text).status().code(), absl::StatusCode::kInternal) << text;
  }
  // Valid base64, but not a NodeDef.
  CallAttributes changed = AttributesOf(config);
  changed.SetString("before", absl::WebSafeBase64Escape("\xff"));
  EXPECT_EQ(DecodeKernelCall(changed).status().code(), absl::StatusCode::kInternal);
}

TEST(KernelCallTest, NodesMayHoldAnything) {
  for (const std::string& text : HardTexts()) {
    KernelCall call{"Conv2D", text};
    (*call.node.mutable_attr())["bytes"].set_s(text);
    const auto read = DecodeKernelCall(Encode(call));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->name, text);
    EXPECT_EQ(read->node.attr().at("bytes").s(), text);
    EXPECT_EQ(read->work, 0);
  }
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

TEST(EmbeddingCallsTest, RefuseWhatTheyDidNotWrite) {
  for (const auto& changed :
       WithEachOfAnotherType(Encode(ReceiveActivationsCall{"receive"}), {"op"})) {
    EXPECT_FALSE(DecodeReceiveActivationsCall(changed).ok()) << changed.ToText();
  }
  const std::string config = Encode(SendGradientsCall{"send", 4});
  for (const auto& changed : WithEachOfAnotherType(config, {"gradients", "op"})) {
    EXPECT_FALSE(DecodeSendGradientsCall(changed).ok()) << changed.ToText();
  }
  for (const auto& changed : WithBadCounts(config, "gradients")) {
    EXPECT_FALSE(DecodeSendGradientsCall(changed).ok()) << changed.ToText();
  }
}

SparseCoreShape ShapeOfLookup() {
  SparseCoreShape shape;
  shape.op = "lookup";
  shape.table = "words";
  shape.chips = 2;
  shape.cores_per_chip = 4;
  shape.row_pointers = 64;
  shape.ids = 128;
  shape.samples = 16;
  shape.rows = 32;
  shape.width = 8;
  shape.max_ids = 256;
  return shape;
}

TEST(SparseCoreCallsTest, AreReadAsWritten) {
  SparseLookupCall lookup = {ShapeOfLookup(), {}};
  lookup.quantization.set_enabled(true);
  lookup.quantization.set_num_buckets(5);
  const auto read = DecodeSparseLookupCall(AttributesOf(Encode(lookup)));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(Encode(*read), Encode(lookup));
  EXPECT_EQ(read->shape.op, "lookup");
  EXPECT_EQ(read->shape.table, "words");
  EXPECT_EQ(read->shape.row_pointers, 64);
  EXPECT_EQ(read->shape.max_ids, 256);
  EXPECT_EQ(read->shape.words(), 64 + 3 * 128 + 1);
  EXPECT_EQ(read->quantization.num_buckets(), 5);
  SparseUpdateCall update = {ShapeOfLookup(), {}};
  update.optimizer.mutable_adam()->set_beta1(0.5);
  const auto updated = DecodeSparseUpdateCall(AttributesOf(Encode(update)));
  ASSERT_TRUE(updated.ok()) << updated.status();
  EXPECT_EQ(updated->optimizer.adam().beta1(), 0.5);
  const SparseGradientsCall gradients = {ShapeOfLookup()};
  const auto summed = DecodeSparseGradientsCall(AttributesOf(Encode(gradients)));
  ASSERT_TRUE(summed.ok()) << summed.status();
  EXPECT_EQ(Encode(*summed), Encode(gradients));
}

TEST(SparseCoreCallsTest, RefuseWhatTheyDidNotWrite) {
  const std::string config = Encode(SparseUpdateCall{ShapeOfLookup(), {}});
  const std::vector<std::string> names = {"op",      "table",        "options", "chips",
                                          "ids",     "rows",         "width",   "cores_per_chip",
                                          "max_ids", "row_pointers", "samples"};
  for (const auto& rest : WithoutEach(config, names)) {
    EXPECT_FALSE(DecodeSparseUpdateCall(rest).ok()) << rest.ToText();
  }
  for (const auto& changed : WithEachOfAnotherType(config, names)) {
    EXPECT_FALSE(DecodeSparseUpdateCall(changed).ok()) << changed.ToText();
  }
  for (const auto& changed : WithBadCounts(config, "rows")) {
    EXPECT_FALSE(DecodeSparseUpdateCall(changed).ok()) << changed.ToText();
  }
}

TEST(ProbeCallTest, IsReadAsWritten) {
  const ProbeCall call = {3, {{0, 1}}};
  const auto read = DecodeProbeCall(AttributesOf(Encode(call)));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->probe, 3);
  EXPECT_EQ(read->dynamic, call.dynamic);
}

TEST(ProbeCallTest, RefusesWhatItDidNotWrite) {
  const std::vector<std::string> names = {"probe", "dynamic"};
  for (const CallAttributes& attributes : WithoutEach(Encode(ProbeCall{1, {}}), names)) {
    EXPECT_FALSE(DecodeProbeCall(attributes).ok());
  }
  for (const CallAttributes& attributes : WithEachOfAnotherType(Encode(ProbeCall{1, {}}), names)) {
    EXPECT_FALSE(DecodeProbeCall(attributes).ok());
  }
  EXPECT_FALSE(DecodeProbeCall(AttributesOf(Encode(ProbeCall{-1, {}}))).ok());
}

}  // namespace
}  // namespace tf_tpu_ext
