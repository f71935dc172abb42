#include "cc/check/value_summary.h"

#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "cc/base/tensor_testing.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;

template <typename T>
class ValueSummaryTest : public ::testing::Test {};

using Types = ::testing::Types<float, double, tensorflow::bfloat16, Eigen::half,
                               std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(ValueSummaryTest, Types);

template <typename T>
Worst WorstWith(double number) {
  return Summarize(MakeVector<T>({static_cast<T>(1), static_cast<T>(number), static_cast<T>(-3)}))
      .worst;
}

TYPED_TEST(ValueSummaryTest, TellsTheWorstNumber) {
  EXPECT_EQ(WorstWith<TypeParam>(-2.5), Worst::kFinite);
  EXPECT_EQ(WorstWith<TypeParam>(std::numeric_limits<double>::infinity()), Worst::kInfinity);
  EXPECT_EQ(WorstWith<TypeParam>(-std::numeric_limits<double>::infinity()), Worst::kInfinity);
  EXPECT_EQ(WorstWith<TypeParam>(std::numeric_limits<double>::quiet_NaN()), Worst::kNan);
  EXPECT_EQ(WorstWith<TypeParam>(-std::numeric_limits<double>::quiet_NaN()), Worst::kNan);
}

TYPED_TEST(ValueSummaryTest, KnowsWhatNobodyHasWritten) {
  Tensor value = MakeVector<TypeParam>({static_cast<TypeParam>(1), static_cast<TypeParam>(2)});
  FillAsUnwritten(value.dtype(), value.data(), value.TotalBytes());
  EXPECT_EQ(Summarize(value).worst, Worst::kUnwritten);
  // Results computed from it show up too.
  value = MakeVector<TypeParam>({value.flat<TypeParam>()(1) + static_cast<TypeParam>(1)});
  EXPECT_NE(Summarize(value).worst, Worst::kFinite);
}

TEST(ValueSummaryTest, XlasNansOfAllBitsAreNoFiller) {
  Tensor value = MakeVector<float>({1, 2});
  std::memset(value.data(), 0xFF, value.TotalBytes());
  EXPECT_EQ(Summarize(value).worst, Worst::kNan);
}

TEST(ValueSummaryTest, OtherTypesAreFinite) {
  EXPECT_EQ(Summarize(MakeVector<int32_t>({-1, 2})).worst, Worst::kFinite);
  EXPECT_EQ(Summarize(Tensor(tensorflow::DT_FLOAT, {0})).worst, Worst::kFinite);
}

TEST(ValueSummaryTest, HashesTellValuesApart) {
  EXPECT_EQ(Summarize(MakeVector<float>({1, 2})).hash, Summarize(MakeVector<float>({1, 2})).hash);
  EXPECT_NE(Summarize(MakeVector<float>({1, 2})).hash, Summarize(MakeVector<float>({2, 1})).hash);
}

TEST(ValueSummaryTest, FillsBoolsAndOddSizes) {
  Tensor bools(tensorflow::DT_BOOL, {3});
  FillAsUnwritten(bools.dtype(), bools.data(), bools.TotalBytes());
  EXPECT_EQ(ValuesOf<bool>(bools), (std::vector<bool>{true, true, true}));
  Tensor bytes = MakeVector<int8_t>({1, 2, 3});
  FillAsUnwritten(bytes.dtype(), bytes.data(), bytes.TotalBytes());
  for (int8_t byte : ValuesOf<int8_t>(bytes)) EXPECT_LT(byte, 0);
  FillAsUnwritten(tensorflow::DT_FLOAT, nullptr, 0);
}

}  // namespace
}  // namespace tf_tpu_ext
