// Compares scans and average pools over dimensions of dynamic size with plain loops over real
// elements.
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cc/base/op_testing.h"
#include "cc/base/tensor_testing.h"
#include "cc/compiler/overrides/dynamic_testing.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;

struct Scan {
  const char* op;
  float neutral;
  std::function<float(float, float)> combine;
};

const std::vector<Scan>& Scans() {
  static const auto* const scans =
      new std::vector<Scan>{{"Cumsum", 0, [](float a, float b) { return a + b; }},
                            {"Cumprod", 1, [](float a, float b) { return a * b; }},
                            {"CumulativeLogsumexp", -std::numeric_limits<float>::infinity(),
                             [](float a, float b) { return std::log(std::exp(a) + std::exp(b)); }}};
  return *scans;
}

Tensor ScanOf(const Scan& scan, const Tensor& x, int axis, bool reverse, bool exclusive) {
  Tensor result = Zeros(SizesOf(x));
  ForEachIndex(SizesOf(x), [&](const Index& index) {
    float value = scan.neutral;
    Index from = index;
    for (from[axis] = 0; from[axis] < x.dim_size(axis); ++from[axis]) {
      const int64_t ahead = reverse ? from[axis] - index[axis] : index[axis] - from[axis];
      if (ahead > 0 || (ahead == 0 && !exclusive)) value = scan.combine(value, At(x, from));
    }
    At(result, index) = value;
  });
  return result;
}

void ExpectScans(const Scan& scan, const Tensor& x, int size, int axis, bool reverse,
                 bool exclusive) {
  const auto result = OpTester(absl::StrCat("TpuExt>Dynamic", scan.op))
                          .DynamicInput(x, 0, size)
                          .Constant(MakeScalar<int32_t>(axis))
                          .Attr("reverse", reverse)
                          .Attr("exclusive", exclusive)
                          .Run();
  ASSERT_TRUE(result.ok()) << result.status();
  const Tensor expected = ScanOf(scan, Cut(x, 0, size), axis, reverse, exclusive);
  ASSERT_EQ(result->shape(), expected.shape());
  for (int64_t i = 0; i < expected.NumElements(); ++i) {
    const float wanted = expected.flat<float>()(i), got = result->flat<float>()(i);
    if (std::isinf(wanted)) {
      EXPECT_EQ(got, wanted) << scan.op << " element " << i;
    } else {
      EXPECT_NEAR(got, wanted, 1e-4 * (1 + std::abs(wanted))) << scan.op << " element " << i;
    }
  }
}

TEST(DynamicScansTest, CombineRealElementsOnly) {
  for (const Scan& scan : Scans()) {
    for (const int size : {0, 2}) {
      const Tensor x = Padded({3, 2}, 0, size);
      ExpectScans(scan, x, size, /*axis=*/0, /*reverse=*/false, /*exclusive=*/true);
      ExpectScans(scan, x, size, /*axis=*/0, /*reverse=*/true, /*exclusive=*/false);
      // Along the dimension of static size.
      ExpectScans(scan, x, size, /*axis=*/1, /*reverse=*/true, /*exclusive=*/true);
    }
  }
}

TEST(DynamicScansTest, WithoutElementsThereIsNothingToScan) {
  const auto result = OpTester("TpuExt>DynamicCumsum")
                          .DynamicInput(Tensor(tensorflow::DT_FLOAT, {3, 0}), 0, 2)
                          .Constant(MakeScalar<int32_t>(0))
                          .Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->shape(), tensorflow::TensorShape({2, 0}));
}

// An average pool and its gradient.
struct Pool {
  std::vector<int> windows, strides;
  bool same = false;

  SlidingWindow Along(int d, int64_t elements) const {
    return SlidingWindow(elements, windows[d], strides[d], same);
  }
  Index WindowSizes() const { return Index(windows.begin(), windows.end()); }

  Index ResultSizes(const Index& input) const {
    Index sizes;
    for (size_t d = 0; d < input.size(); ++d) sizes.push_back(Along(d, input[d]).count);
    return sizes;
  }

  // The real elements in the window of a result.
  std::vector<Index> Under(const Index& result, const Index& input) const {
    std::vector<Index> elements;
    ForEachIndex(WindowSizes(), [&](const Index& offset) {
      Index position(input.size());
      for (size_t d = 0; d < input.size(); ++d) {
        const SlidingWindow along = Along(d, input[d]);
        position[d] = along.PositionOf(result[d], offset[d]);
        if (!along.IsInside(position[d])) return;
      }
      elements.push_back(position);
    });
    return elements;
  }

  Tensor Mean(const Tensor& x) const {
    Tensor mean = Zeros(ResultSizes(SizesOf(x)));
    ForEachIndex(SizesOf(mean), [&](const Index& result) {
      const std::vector<Index> elements = Under(result, SizesOf(x));
      float sum = 0;
      for (const Index& element : elements) sum += At(x, element);
      At(mean, result) = sum / static_cast<float>(elements.size());
    });
    return mean;
  }

  Tensor Gradient(const Index& input, const Tensor& gradient) const {
    Tensor spread = Zeros(input);
    ForEachIndex(SizesOf(gradient), [&](const Index& result) {
      const std::vector<Index> elements = Under(result, input);
      for (const Index& element : elements) {
        At(spread, element) += At(gradient, result) / static_cast<float>(elements.size());
      }
    });
    return spread;
  }

  OpTester& AddTo(OpTester& tester) const {
    return tester.Attr("ksize", windows)
        .Attr("strides", strides)
        .Attr("padding", std::string(same ? "SAME" : "VALID"));
  }
};

std::vector<Pool> Pools() {
  std::vector<Pool> pools;
  for (const bool same : {false, true}) {
    pools.push_back({{1, 2, 3, 1}, {1, 2, 1, 1}, same});
    pools.push_back({{1, 3, 2, 1}, {1, 1, 2, 1}, same});
    // Windows with gaps between them.
    pools.push_back({{1, 1, 2, 1}, {1, 3, 3, 1}, same});
  }
  return pools;
}

std::string Describe(const Pool& pool, int dimension, int size) {
  return absl::StrCat(pool.same ? "SAME " : "VALID ", pool.windows[1], "x", pool.windows[2],
                      " dimension ", dimension, " size ", size, ": ");
}

TEST(DynamicAvgPoolTest, IsTheMeanOfRealElements) {
  for (const Pool& pool : Pools()) {
    for (const int dimension : {0, 1, 2}) {
      const tensorflow::TensorShape shape({2, 5, 4, 2});
      // Includes sizes smaller than a window, for which VALID has no result.
      for (int size = 1; size <= shape.dim_size(dimension); size += 2) {
        const Tensor x = Padded(shape, dimension, size);
        OpTester tester("TpuExt>DynamicAvgPool");
        tester.DynamicInput(x, dimension, size);
        ExpectSame(pool.AddTo(tester).Run(), pool.Mean(Cut(x, dimension, size)),
                   Describe(pool, dimension, size));
      }
    }
  }
}

TEST(DynamicAvgPoolTest, OfVolumes) {
  for (const bool same : {false, true}) {
    const Pool pool = {{1, 2, 2, 1, 1}, {1, 1, 2, 1, 1}, same};
    for (int size = 1; size <= 4; ++size) {
      const Tensor x = Padded({1, 3, 4, 2, 1}, 2, size);
      OpTester tester("TpuExt>DynamicAvgPool3D");
      tester.DynamicInput(x, 2, size);
      ExpectSame(pool.AddTo(tester).Run(), pool.Mean(Cut(x, 2, size)),
                 absl::StrCat(same, " size ", size, ": "));
    }
  }
}

TEST(DynamicAvgPoolTest, GradientsAreSharedByRealElements) {
  for (const Pool& pool : Pools()) {
    const Index bounds = {1, 5, 4, 1};
    for (int size = 1; size <= bounds[1]; size += 2) {
      Index real = bounds;
      real[1] = size;
      const int64_t rows = pool.ResultSizes(real)[1];
      const Tensor gradient = Padded(tensorflow::TensorShape(pool.ResultSizes(bounds)), 1, rows);
      OpTester tester("TpuExt>DynamicAvgPoolGrad");
      tester.DynamicShape(Padded(tensorflow::TensorShape(bounds), 1, size), 1, size);
      tester.DynamicInput(gradient, 1, static_cast<int32_t>(rows));
      ExpectSame(pool.AddTo(tester).Run(), pool.Gradient(real, Cut(gradient, 1, rows)),
                 Describe(pool, 1, size));
    }
  }
}

TEST(DynamicAvgPoolTest, GradientsOfAnotherShapeAreErrors) {
  const Pool pool = {{1, 2, 2, 1}, {1, 2, 2, 1}, true};
  OpTester tester("TpuExt>DynamicAvgPoolGrad");
  tester.DynamicShape(Padded({1, 4, 4, 1}, 1, 3), 1, 3);
  tester.DynamicInput(Padded({1, 3, 2, 1}, 1, 2), 1, 2);
  const absl::Status status = pool.AddTo(tester).Compile().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("dimension 1 of the gradient has 3 elements"), std::string::npos)
      << status;
}

}  // namespace
}  // namespace tf_tpu_ext
