#include "cc/runtime/caller_executor.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tensorflow/core/common_runtime/device_factory.h"
#include "tensorflow/core/common_runtime/executor.h"
#include "tensorflow/core/common_runtime/executor_factory.h"
#include "tensorflow/core/common_runtime/function.h"
#include "tensorflow/core/common_runtime/local_executor_params.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/graph/algorithm.h"
#include "tensorflow/core/public/session_options.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::Executor;
using tensorflow::Graph;
using tensorflow::Node;
using tensorflow::NodeDef;
using tensorflow::OpKernelContext;

// Stand-ins for programs: one ends on the thread that starts it, the other on another thread.
REGISTER_OP("TPUExecuteHere").Input("value: float").Output("result: float");
REGISTER_OP("TPUExecuteElsewhere").Input("value: float").Output("result: float");

std::vector<std::thread::id>& Started() {
  static auto* threads = new std::vector<std::thread::id>;
  return *threads;
}

class ExecuteHere : public AsyncOpKernel {
 public:
  using AsyncOpKernel::AsyncOpKernel;
  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    Started().push_back(std::this_thread::get_id());
    context->set_output(0, context->input(0));
    done();
  }
};

class ExecuteElsewhere : public AsyncOpKernel {
 public:
  using AsyncOpKernel::AsyncOpKernel;
  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    Started().push_back(std::this_thread::get_id());
    std::thread([context, done = std::move(done)] {
      context->set_output(0, context->input(0));
      done();
    }).detach();
  }
};

REGISTER_KERNEL_BUILDER(Name("TPUExecuteHere").Device(tensorflow::DEVICE_CPU), ExecuteHere);
REGISTER_KERNEL_BUILDER(Name("TPUExecuteElsewhere").Device(tensorflow::DEVICE_CPU),
                        ExecuteElsewhere);

class CallerExecutorTest : public ::testing::Test {
 protected:
  CallerExecutorTest()
      : device_(tensorflow::DeviceFactory::NewDevice("CPU", tensorflow::SessionOptions(),
                                                     "/job:localhost/replica:0/task:0")),
        graph_(tensorflow::OpRegistry::Global()) {
    Started().clear();
    value_ = Add("Const", {}, [](NodeDef* node) {
      tensorflow::AddNodeAttr("dtype", tensorflow::DT_FLOAT, node);
      tensorflow::AddNodeAttr("value", tensorflow::Tensor(2.0F), node);
    });
  }

  template <typename Fill>
  Node* Add(const std::string& op, const std::vector<Node*>& inputs, Fill fill) {
    NodeDef definition;
    definition.set_name(absl::StrCat("node", graph_.num_node_ids()));
    definition.set_op(op);
    for (const Node* input : inputs) definition.add_input(input->name());
    fill(&definition);
    absl::StatusOr<Node*> node = graph_.AddNode(std::move(definition));
    EXPECT_TRUE(node.ok()) << node.status();
    for (size_t i = 0; i < inputs.size(); ++i) {
      graph_.AddEdge(inputs[i], 0, *node, static_cast<int>(i));
    }
    return *node;
  }
  Node* Add(const std::string& op, const std::vector<Node*>& inputs) {
    return Add(op, inputs, [](NodeDef*) {});
  }
  Node* AddSum(const std::vector<Node*>& inputs) {
    return Add("AddN", inputs, [&](NodeDef* node) {
      tensorflow::AddNodeAttr("T", tensorflow::DT_FLOAT, node);
      tensorflow::AddNodeAttr("N", static_cast<int>(inputs.size()), node);
    });
  }

  // Runs the graph. Work handed to other threads is counted and done immediately.
  absl::Status RunGraph() {
    tensorflow::FixupSourceAndSinkEdges(&graph_);
    tensorflow::LocalExecutorParams params;
    params.device = device_.get();
    params.create_kernel = [this](const std::shared_ptr<const tensorflow::NodeProperties>& node,
                                  tensorflow::OpKernel** kernel) {
      return tensorflow::CreateNonCachedKernel(device_.get(), nullptr, node,
                                               graph_.versions().producer(), kernel);
    };
    params.delete_kernel = [](tensorflow::OpKernel* kernel) {
      tensorflow::DeleteNonCachedKernel(kernel);
    };
    std::unique_ptr<Executor> executor;
    absl::Status status = tensorflow::NewExecutor(kCallerExecutor, params, graph_, &executor);
    if (!status.ok()) return status;
    Executor::Args args;
    args.runner = [this](const Executor::Args::Closure& work) {
      ++handed_over_;
      work();
    };
    return executor->Run(args);
  }

  std::unique_ptr<tensorflow::Device> device_;
  Graph graph_;
  Node* value_;
  std::atomic<int> handed_over_ = 0;
};

TEST_F(CallerExecutorTest, StartsProgramsOnTheCallersThread) {
  AddSum({Add("TPUExecuteElsewhere", {value_}), Add("TPUExecuteElsewhere", {value_})});
  EXPECT_EQ(PartOfCaller(graph_), CallersPart::kWhole);
  ASSERT_TRUE(RunGraph().ok());
  const std::thread::id here = std::this_thread::get_id();
  EXPECT_EQ(Started(), (std::vector<std::thread::id>{here, here}));
  EXPECT_EQ(handed_over_, 0);
}

TEST_F(CallerExecutorTest, ProgramsAfterProgramsAreNotStartedWhereThoseEnd) {
  AddSum({Add("TPUExecuteElsewhere", {Add("TPUExecuteElsewhere", {value_})})});
  EXPECT_EQ(PartOfCaller(graph_), CallersPart::kStart);
  ASSERT_TRUE(RunGraph().ok());
  EXPECT_EQ(Started()[0], std::this_thread::get_id());
  EXPECT_GT(handed_over_, 0);
}

TEST_F(CallerExecutorTest, ManyProgramsInARowNeedNoStack) {
  constexpr int kPrograms = 20000;
  Node* last = value_;
  for (int i = 0; i < kPrograms; ++i) last = Add("TPUExecuteHere", {last});
  ASSERT_TRUE(RunGraph().ok());
  EXPECT_EQ(Started().size(), kPrograms);
  EXPECT_EQ(handed_over_, 0);
}

TEST_F(CallerExecutorTest, LoopsRunWithoutThreadsBetweenTheirPrograms) {
  const auto of_floats = [](NodeDef* node) {
    tensorflow::AddNodeAttr("T", tensorflow::DT_FLOAT, node);
  };
  const auto into_loop = [&](bool constant) {
    return [&, constant](NodeDef* node) {
      of_floats(node);
      tensorflow::AddNodeAttr("frame_name", "loop", node);
      tensorflow::AddNodeAttr("is_constant", constant, node);
      tensorflow::AddNodeAttr("parallel_iterations", 10, node);
    };
  };
  // A loop that starts with 2 and doubles it while it is less than 32.
  Node* limit = Add("Const", {}, [](NodeDef* node) {
    tensorflow::AddNodeAttr("dtype", tensorflow::DT_FLOAT, node);
    tensorflow::AddNodeAttr("value", tensorflow::Tensor(32.0F), node);
  });
  Node* value = Add("Merge", {Add("Enter", {value_}, into_loop(false))}, [&](NodeDef* node) {
    of_floats(node);
    tensorflow::AddNodeAttr("N", 2, node);
    node->add_input("next");
  });
  Node* less = Add("Less", {value, Add("Enter", {limit}, into_loop(true))}, of_floats);
  Node* choice = Add("Switch", {value, Add("LoopCond", {less})}, of_floats);
  Add("Exit", {choice}, of_floats);
  Node* program =
      Add("TPUExecuteElsewhere", {}, [](NodeDef* node) { node->add_input("choice:1"); });
  graph_.AddEdge(choice, 1, program, 0);
  graph_.AddEdge(Add("NextIteration", {AddSum({program, program})}, of_floats), 0, value, 1);

  EXPECT_EQ(PartOfCaller(graph_), CallersPart::kStart);
  const absl::Status status = RunGraph();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(Started().size(), 4);
  EXPECT_EQ(Started()[0], std::this_thread::get_id());
  // What follows each program, and the end of the executor.
  EXPECT_EQ(handed_over_, 5);
}

TEST_F(CallerExecutorTest, OtherOpsKeepTheirThreads) {
  Node* program = Add("TPUExecuteHere", {value_});
  Add("MatrixInverse", {program},
      [](NodeDef* node) { tensorflow::AddNodeAttr("T", tensorflow::DT_FLOAT, node); });
  EXPECT_EQ(PartOfCaller(graph_), CallersPart::kNothing);
}

TEST_F(CallerExecutorTest, GraphsWithoutProgramsKeepTheirThreads) {
  AddSum({value_, value_});
  EXPECT_EQ(PartOfCaller(graph_), CallersPart::kNothing);
  ASSERT_TRUE(RunGraph().ok());
  EXPECT_GT(handed_over_, 0);
}

}  // namespace
}  // namespace tf_tpu_ext
