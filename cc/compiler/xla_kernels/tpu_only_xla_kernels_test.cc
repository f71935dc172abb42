// Compares the kernels of ops that the wheel lacks with plain loops.
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "cc/base/op_testing.h"
#include "cc/base/tensor_testing.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;
using tensorflow::TensorShape;

Tensor Numbers(const TensorShape& shape, float first = 1) {
  std::vector<float> values(shape.num_elements());
  for (size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i);
  return MakeTensor(values, shape);
}

// x[i, :] += v or = v, as the ops are documented.
std::vector<float> UpdateRows(const Tensor& x, const std::vector<int>& rows, const Tensor& v,
                              bool add) {
  std::vector<float> result = ValuesOf<float>(x);
  const auto num_rows = static_cast<int>(x.dim_size(0));
  const int width = static_cast<int>(x.NumElements()) / num_rows;
  for (size_t k = 0; k < rows.size(); ++k) {
    const int row = ((rows[k] % num_rows) + num_rows) % num_rows;
    for (int i = 0; i < width; ++i) {
      float& to = result[row * width + i];
      const float from = v.flat<float>()(static_cast<int>(k) * width + i);
      to = add ? to + from : from;
    }
  }
  return result;
}

TEST(RowUpdateTest, UpdatesAndAddsRows) {
  const Tensor x = Numbers({4, 3});
  const Tensor v = Numbers({2, 3}, 100);
  for (const std::vector<int>& rows : std::vector<std::vector<int>>{{0, 2}, {3, 1}, {-1, 4}}) {
    for (bool add : {false, true}) {
      const auto result = OpTester(add ? "InplaceAdd" : "InplaceUpdate")
                              .Input(x)
                              .Input(MakeVector<int32_t>({rows[0], rows[1]}))
                              .Input(v)
                              .Run();
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(ValuesOf<float>(*result), UpdateRows(x, rows, v, add)) << rows[0] << add;
    }
  }
}

TEST(RowUpdateTest, ARowMayBeAddedTwice) {
  const Tensor x = Numbers({2, 2}), v = Numbers({3, 2});
  const auto result =
      OpTester("InplaceAdd").Input(x).Input(MakeVector<int32_t>({1, 1, 0})).Input(v).Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(ValuesOf<float>(*result), UpdateRows(x, {1, 1, 0}, v, true));
}

TEST(RowUpdateTest, TakesAScalarRowAndNoRows) {
  const Tensor x = Numbers({3, 2}), v = Numbers({1, 2}, 7);
  auto result = OpTester("InplaceUpdate").Input(x).Input(MakeScalar<int32_t>(1)).Input(v).Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(ValuesOf<float>(*result), UpdateRows(x, {1}, v, false));
  result = OpTester("InplaceUpdate")
               .Input(x)
               .Input(MakeVector<int32_t>({}))
               .Input(Tensor(tensorflow::DT_FLOAT, {0, 2}))
               .Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(ValuesOf<float>(*result), ValuesOf<float>(x));
}

TEST(RowUpdateTest, RefusesRowsOfOtherShapes) {
  for (const TensorShape& shape : {TensorShape({2, 3}), TensorShape({1, 2}), TensorShape({2})}) {
    const auto result = OpTester("InplaceAdd")
                            .Input(Numbers({3, 2}))
                            .Input(MakeVector<int32_t>({0, 1}))
                            .Input(Numbers(shape))
                            .Compile();
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << shape.DebugString();
  }
}

// The gradient of each pixel goes to the pixel that it was copied from.
std::vector<float> ResizeGradient(const Tensor& grads, int height, int width, bool align_corners,
                                  bool half_pixel_centers) {
  const int from_height = static_cast<int>(grads.dim_size(1));
  const int from_width = static_cast<int>(grads.dim_size(2));
  const auto source = [&](int i, int original, int resized) {
    const float scale = align_corners && resized > 1
                            ? static_cast<float>(original - 1) / static_cast<float>(resized - 1)
                            : static_cast<float>(original) / static_cast<float>(resized);
    const float at = (static_cast<float>(i) + (half_pixel_centers ? 0.5f : 0.0f)) * scale;
    const int pixel = static_cast<int>(align_corners ? std::round(at) : std::floor(at));
    return std::min(pixel, original - 1);
  };
  std::vector<float> result(height * width, 0.0f);
  for (int i = 0; i < from_height; ++i) {
    for (int j = 0; j < from_width; ++j) {
      result[source(i, height, from_height) * width + source(j, width, from_width)] +=
          grads.flat<float>()(i * from_width + j);
    }
  }
  return result;
}

TEST(ResizeNearestNeighborGradTest, SumsOverTheCopies) {
  for (const auto& [align_corners, half_pixel_centers] :
       std::vector<std::pair<bool, bool>>{{false, false}, {true, false}, {false, true}}) {
    for (const auto& [height, width] : std::vector<std::pair<int, int>>{{2, 3}, {5, 4}, {7, 1}}) {
      const Tensor grads = Numbers({1, 5, 4, 1});
      const auto result = OpTester("ResizeNearestNeighborGrad")
                              .Input(grads)
                              .Constant(MakeVector<int32_t>({height, width}))
                              .Attr("align_corners", align_corners)
                              .Attr("half_pixel_centers", half_pixel_centers)
                              .Run();
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->shape(), TensorShape({1, height, width, 1}));
      EXPECT_EQ(ValuesOf<float>(*result),
                ResizeGradient(grads, height, width, align_corners, half_pixel_centers))
          << height << "x" << width << align_corners << half_pixel_centers;
    }
  }
}

TEST(ResizeNearestNeighborGradTest, RefusesOtherSizes) {
  for (const std::vector<int32_t>& size : std::vector<std::vector<int32_t>>{{0, 3}, {2, -1}, {2}}) {
    const auto result = OpTester("ResizeNearestNeighborGrad")
                            .Input(Numbers({1, 5, 4, 1}))
                            .Constant(MakeVector<int32_t>(size))
                            .Compile();
    EXPECT_FALSE(result.ok()) << size[0];
  }
  const auto result = OpTester("ResizeNearestNeighborGrad")
                          .DynamicInput(Numbers({1, 5, 4, 1}), 1, 3)
                          .Constant(MakeVector<int32_t>({2, 2}))
                          .Compile();
  EXPECT_NE(result.status().message().find("with a fixed height and width"), std::string::npos)
      << result.status();
}

}  // namespace
}  // namespace tf_tpu_ext
