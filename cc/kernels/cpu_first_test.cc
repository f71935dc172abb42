#include "cc/kernels/cpu_first.h"

#include <cstdint>
#include <vector>

#include "cc/base/tensor_testing.h"
#include "cc/kernels/kernel_testing.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::NodeDef;
using tensorflow::Tensor;

class CpuFirstTest : public testing::Test {
 protected:
  // Adds 1 and 2 to two elements of (1, 1, 1).
  absl::StatusOr<std::vector<Tensor>> AddAt(int first, int second) {
    const auto scatter = KernelRunner::Node("TensorScatterAdd", [](NodeDef* node) {
      AddNodeAttr("T", tensorflow::DT_FLOAT, node);
      AddNodeAttr("Tindices", tensorflow::DT_INT32, node);
    });
    return runner_.Run(
        scatter, "TPU:0",
        {input_, MakeTensor<int32_t>({first, second}, {2, 1}), MakeVector<float>({1, 2})});
  }

  KernelRunner runner_;
  const Tensor input_ = MakeVector<float>({1, 1, 1});
};

std::vector<float> Values(const Tensor& tensor) {
  const auto flat = tensor.flat<float>();
  return std::vector<float>(flat.data(), flat.data() + flat.size());
}

TEST_F(CpuFirstTest, TheCpuComputesWhatItTakes) {
  const auto sum = AddAt(0, 2);
  ASSERT_TRUE(sum.ok()) << sum.status();
  EXPECT_EQ(Values((*sum)[0]), std::vector<float>({2, 1, 3}));
}

TEST_F(CpuFirstTest, TheCompiledOpGetsTheInputsAsTheyCame) {
  const auto sum = AddAt(0, 9);
  ASSERT_TRUE(sum.ok()) << sum.status();
  EXPECT_EQ(Values((*sum)[0]), std::vector<float>({2, 1, 1}));
  EXPECT_EQ(Values(input_), std::vector<float>({1, 1, 1}));
}

TEST_F(CpuFirstTest, OtherOpsStayWithTheCpu) {
  NodeDef node;
  node.set_op("CheckNumerics");
  EXPECT_FALSE(CpuRefusesInputs(node));
}

}  // namespace
}  // namespace tf_tpu_ext
