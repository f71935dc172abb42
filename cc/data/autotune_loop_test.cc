#include "cc/data/autotune_loop.h"

#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

// The replacement relies only on TensorFlow's libraries calling the loop through their import
// tables, which another build of TensorFlow may not do.
TEST(AutotuneLoopTest, IsReplacedAndRestored) {
  // Restoring what was never replaced does nothing.
  EXPECT_TRUE(RestoreAutotuneLoop().ok());
  for (int round = 0; round < 3; ++round) {
    const absl::Status replaced = ReplaceAutotuneLoop();
    ASSERT_TRUE(replaced.ok()) << replaced;
    // Once is enough.
    EXPECT_TRUE(ReplaceAutotuneLoop().ok());
    const absl::Status restored = RestoreAutotuneLoop();
    ASSERT_TRUE(restored.ok()) << restored;
    EXPECT_TRUE(RestoreAutotuneLoop().ok());
  }
}

}  // namespace
}  // namespace tf_tpu_ext
