#include "cc/pods/pod.h"

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cc/pods/pod_testing.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/graph/graph.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Graph;
using tensorflow::Node;
using tensorflow::NodeDef;

constexpr char kHostAttribute[] = "_tpu_ext_pod_host";
constexpr char kCoresAttribute[] = "_tpu_ext_pod_cores_per_host";
constexpr char kCpusAttribute[] = "_tpu_ext_pod_cpus";
constexpr char kIncarnationsAttribute[] = "_tpu_ext_pod_incarnations";

class PodTest : public ::testing::Test {
 protected:
  PodTest() {
    NodeDef definition;
    definition.set_name("step");
    definition.set_op("NoOp");
    absl::StatusOr<Node*> node = graph_.AddNode(std::move(definition));
    EXPECT_TRUE(node.ok()) << node.status();
    node_ = *node;
  }

  // The pod that is read after one attribute of a pod of three hosts has been given another value.
  template <typename Value>
  absl::StatusOr<Pod> PodWith(const std::string& attribute, const Value& value) {
    AddPod(MakePod(3, 4, 1), node_);
    EXPECT_TRUE(PodOf(node_->attrs()).ok());
    node_->AddAttr(attribute, value);
    return PodOf(node_->attrs());
  }

  Graph graph_{tensorflow::OpRegistry::Global()};
  Node* node_ = nullptr;
};

TEST_F(PodTest, ComesBack) {
  EXPECT_FALSE(HasPod(node_->attrs()));
  for (int host = 0; host < 3; ++host) {
    Pod pod = MakePod(3, 4, host);
    // No attribute can hold a number this large.
    pod.members[Host(2)].incarnation = std::numeric_limits<uint64_t>::max() - 5;
    AddPod(pod, node_);
    EXPECT_TRUE(HasPod(node_->attrs()));
    const absl::StatusOr<Pod> found = PodOf(node_->attrs());
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->shape.hosts, 3);
    EXPECT_EQ(found->shape.host, Host(host));
    EXPECT_EQ(found->shape.cores_per_host, 4);
    ASSERT_EQ(found->members.size(), 3);
    for (Host each : pod.members.numbers()) {
      EXPECT_EQ(found->members[each].cpu, pod.members[each].cpu);
      EXPECT_EQ(found->members[each].incarnation, pod.members[each].incarnation);
    }
    EXPECT_EQ(found->here().cpu, pod.members[Host(host)].cpu);
  }
}

TEST_F(PodTest, AHostThatThePodDoesNotHaveIsAnError) {
  for (const int64_t host : {int64_t{-1}, int64_t{3}, std::numeric_limits<int64_t>::min(),
                             std::numeric_limits<int64_t>::max()}) {
    const absl::Status status = PodWith(kHostAttribute, host).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), absl::StrCat("host ", host, " of 3")))
        << status;
  }
  // Otherwise the test would find errors in correct attributes.
  EXPECT_TRUE(PodWith(kHostAttribute, int64_t{2}).ok());
}

TEST_F(PodTest, ANumberOfCoresThatNoHostHasIsAnError) {
  for (const int64_t cores :
       {int64_t{0}, int64_t{-4}, int64_t{1} << 31, std::numeric_limits<int64_t>::max()}) {
    const absl::Status status = PodWith(kCoresAttribute, cores).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  }
  EXPECT_TRUE(PodWith(kCoresAttribute, int64_t{1}).ok());
}

TEST_F(PodTest, ListsOfOtherLengthsAreAnError) {
  for (const std::vector<int64_t>& incarnations :
       {std::vector<int64_t>{}, std::vector<int64_t>{1, 2}, std::vector<int64_t>{1, 2, 3, 4}}) {
    const absl::Status status = PodWith(kIncarnationsAttribute, incarnations).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  }
  const absl::Status status = PodWith(kCpusAttribute, std::vector<std::string>{"a", "b"}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
}

TEST_F(PodTest, OneHostOrNoneIsNoPod) {
  for (int hosts : {0, 1}) {
    AddPod(MakePod(hosts, 4, 0), node_);
    const absl::Status status = PodOf(node_->attrs()).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  }
}

TEST_F(PodTest, AMissingAttributeIsAnError) {
  for (const char* attribute :
       {kHostAttribute, kCoresAttribute, kCpusAttribute, kIncarnationsAttribute}) {
    AddPod(MakePod(3, 4, 1), node_);
    ASSERT_TRUE(PodOf(node_->attrs()).ok());
    node_->ClearAttr(attribute);
    const absl::Status status = PodOf(node_->attrs()).status();
    EXPECT_TRUE(absl::IsNotFound(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), attribute)) << status;
  }
}

TEST_F(PodTest, AnAttributeOfAnotherTypeIsAnError) {
  for (const char* attribute :
       {kHostAttribute, kCoresAttribute, kCpusAttribute, kIncarnationsAttribute}) {
    const absl::Status status = PodWith(attribute, std::string("text")).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << attribute << ": " << status;
  }
}

TEST(NameOfHostTest, IsTheTaskOfItsCpu) {
  EXPECT_EQ(NameOfHost(MakePod(2, 1, 0).members[Host(1)]), "/job:worker/replica:0/task:1");
  EXPECT_EQ(NameOfHost({"no device", 1}), "no device");
  EXPECT_EQ(NameOfHost({}), "");
}

}  // namespace
}  // namespace tf_tpu_ext
