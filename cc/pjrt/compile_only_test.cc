#include "cc/pjrt/compile_only.h"

#include "cc/pjrt/pjrt_testing.h"
#include "cc/pjrt/plugin.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

TEST(PjrtTopologyTest, CompilesAndTells) {
  FakePlugin& fake = MakeFakePlugin();
  {
    const auto plugin = PjrtPlugin::Initialize(&fake.api, "libtpu.so");
    ASSERT_TRUE(plugin.ok());
    const auto topology = PjrtTopology::Create(*plugin, "v4:2x2x1", "megacore");
    ASSERT_TRUE(topology.ok());
    EXPECT_EQ(fake.topology, "v4:2x2x1");
    EXPECT_EQ(fake.chip_config, "megacore");
    const auto attributes = topology->Attributes();
    ASSERT_TRUE(attributes.ok());
    EXPECT_EQ(attributes->at("devices"), 8);
    EXPECT_EQ(attributes->at("device_memory_bytes_limit"), int64_t{16} << 30);
    EXPECT_EQ(attributes->count("wrap"), 0u);

    const auto compiled = topology->Compile("module", "options");
    ASSERT_TRUE(compiled.ok());
    EXPECT_EQ(fake.module, "module");
    EXPECT_EQ(fake.options, "options");
    EXPECT_EQ(compiled->memory.at("argument"), 100);
    EXPECT_EQ(compiled->memory.at("alias"), 40);
    EXPECT_EQ(compiled->costs.at("flops"), 2.5);
    EXPECT_EQ(compiled->optimized, "optimized");
    EXPECT_EQ(fake.executables, 0);
    EXPECT_EQ(fake.topologies, 1);
  }
  EXPECT_EQ(fake.topologies, 0);
}

TEST(PjrtTopologyTest, ErrorsOfThePlugin) {
  FakePlugin& fake = MakeFakePlugin();
  const auto plugin = PjrtPlugin::Initialize(&fake.api, "libtpu.so");
  ASSERT_TRUE(plugin.ok());
  EXPECT_EQ(PjrtTopology::Create(*plugin, "v9:1x1", "").status(), absl::NotFoundError("no v9"));
  const auto topology = PjrtTopology::Create(*plugin, "v5e:2x4", "");
  ASSERT_TRUE(topology.ok());
  EXPECT_EQ(fake.chip_config, "");
  fake.refuses = "out of memory";
  EXPECT_EQ(topology->Compile("module", "options").status(),
            absl::ResourceExhaustedError("out of memory"));
  EXPECT_EQ(fake.errors, 0);
}

}  // namespace
}  // namespace tf_tpu_ext
