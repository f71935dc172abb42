#include "cc/device/virtual_device.h"

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "cc/base/core_threads.h"
#include "cc/base/machine.h"
#include "cc/device/device_factory.h"
#include "cc/device/topology.h"
#include "gtest/gtest.h"
#include "tensorflow/core/common_runtime/device_factory.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor.pb.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Device;
using tensorflow::DeviceContext;
using tensorflow::Tensor;

TEST(CoreOfDeviceTest, IsTheNumberOfACore) {
  EXPECT_EQ(CoreOfDevice("/job:worker/replica:0/task:2/device:TPU:3"), 3);
  EXPECT_EQ(CoreOfDevice("/device:TPU:0"), 0);
  EXPECT_EQ(CoreOfDevice("/job:localhost/replica:0/task:0/device:CPU:0"), std::nullopt);
  EXPECT_EQ(CoreOfDevice("/job:localhost/replica:0/task:0/device:TPU_SYSTEM:0"), std::nullopt);
  EXPECT_EQ(CoreOfDevice("/job:worker"), std::nullopt);
  EXPECT_EQ(CoreOfDevice("/device:TPU:*"), std::nullopt);
  EXPECT_EQ(CoreOfDevice(""), std::nullopt);
  EXPECT_EQ(CoreOfDevice("not a device"), std::nullopt);
}

TEST(TopologyTest, NamesEachCoreOnce) {
  for (int cores : {1, 2, 3, 8, 64}) {
    const tensorflow::tpu::TopologyProto topology = MakeTopology(MeshShape(cores));
    ASSERT_EQ(topology.mesh_shape_size(), 4);
    EXPECT_EQ(topology.num_tasks(), 1);
    EXPECT_EQ(topology.num_tpu_devices_per_task(), cores);
    ASSERT_EQ(topology.device_coordinates_size(), 4 * cores);
    int extent = 1;
    for (int size : topology.mesh_shape()) extent *= size;
    EXPECT_EQ(extent, cores);
    std::set<std::vector<int>> seen;
    for (int core = 0; core < cores; ++core) {
      std::vector<int> coordinates;
      for (int axis = 0; axis < 4; ++axis) {
        coordinates.push_back(topology.device_coordinates(4 * core + axis));
        EXPECT_GE(coordinates.back(), 0);
        EXPECT_LT(coordinates.back(), topology.mesh_shape(axis));
      }
      EXPECT_TRUE(seen.insert(coordinates).second) << "core " << core << " of " << cores;
    }
  }
}

class VirtualDeviceTest : public ::testing::Test {
 protected:
  // TensorFlow has one registry of devices per process, so there is one machine too.
  static Machine& TheMachine() {
    static auto* const machine = new Machine;
    return *machine;
  }

  static tensorflow::DeviceFactory* Factory(const char* type) {
    static const bool registered = [] {
      RegisterDeviceFactories(&TheMachine(), [] {
        static auto* const threads = new CoreThreads(CoreThreads::Options());
        return threads;
      });
      return true;
    }();
    return registered ? tensorflow::DeviceFactory::GetFactory(type) : nullptr;
  }

  static std::vector<std::unique_ptr<Device>> Create(const char* type) {
    std::vector<std::unique_ptr<Device>> devices;
    const absl::Status status = Factory(type)->CreateDevices(
        tensorflow::SessionOptions(), "/job:localhost/replica:0/task:0", &devices);
    EXPECT_TRUE(status.ok()) << status;
    return devices;
  }

  static std::vector<std::string> List(const char* type) {
    std::vector<std::string> devices;
    EXPECT_TRUE(Factory(type)->ListPhysicalDevices(&devices).ok());
    return devices;
  }
};

// These two come first: once devices exist, their number can't change.
TEST_F(VirtualDeviceTest, AClientHasNone) {
  const MachineOptions before = TheMachine().options();
  MachineOptions options = before;
  options.local_devices = false;
  ASSERT_TRUE(TheMachine().SetOptions(options).ok());
  EXPECT_TRUE(List("TPU").empty());
  EXPECT_TRUE(List("TPU_SYSTEM").empty());
  ASSERT_TRUE(TheMachine().SetOptions(before).ok());
}

TEST_F(VirtualDeviceTest, ThereAreAsManyAsTheMachineHasCores) {
  MachineOptions options;
  options.cores = 3;
  ASSERT_TRUE(TheMachine().SetOptions(options).ok());
  EXPECT_EQ(List("TPU"),
            (std::vector<std::string>{"/physical_device:TPU:0", "/physical_device:TPU:1",
                                      "/physical_device:TPU:2"}));
  EXPECT_EQ(List("TPU_SYSTEM"), std::vector<std::string>{"/physical_device:TPU_SYSTEM:0"});
  const auto cores = Create("TPU");
  ASSERT_EQ(cores.size(), 3);
  for (int core = 0; core < 3; ++core) {
    EXPECT_EQ(CoreOfDevice(cores[core]->name()), core);
    EXPECT_EQ(cores[core]->attributes().xla_global_id(), core);
    EXPECT_EQ(cores[core]->device_type(), "TPU");
  }
  EXPECT_EQ(Create("TPU_SYSTEM").size(), 1);
  options.cores = 4;
  EXPECT_FALSE(TheMachine().SetOptions(options).ok());
}

TEST_F(VirtualDeviceTest, PriorityLeavesUnplacedOpsOnTheCpu) {
  Factory("TPU");
  EXPECT_LT(tensorflow::DeviceFactory::DevicePriority("TPU"),
            tensorflow::DeviceFactory::DevicePriority("CPU"));
}

TEST_F(VirtualDeviceTest, TensorsPassByReference) {
  const auto devices = Create("TPU");
  Device* const core = devices[0].get();
  DeviceContext* context = nullptr;
  ASSERT_TRUE(core->TryGetDeviceContext(&context).ok());
  const tensorflow::core::ScopedUnref unref(context);
  const Tensor on_host(tensorflow::DT_FLOAT, {1000});
  Tensor on_core, copy, back;
  int copied = 0;
  const auto done = [&copied](const absl::Status& status) { copied += status.ok(); };
  context->CopyCPUTensorToDevice(&on_host, core, &on_core, done);
  context->CopyTensorInSameDevice(&on_core, core, &copy, done);
  context->CopyDeviceTensorToCPU(&copy, "edge", core, &back, done);
  EXPECT_EQ(copied, 3);
  EXPECT_TRUE(back.SharesBufferWith(on_host));
  Tensor again;
  core->CopyTensorInSameDevice(&on_core, &again, context, done);
  EXPECT_EQ(copied, 4);
  EXPECT_TRUE(again.SharesBufferWith(on_host));
}

TEST_F(VirtualDeviceTest, MakesTensorsOfProtos) {
  const auto devices = Create("TPU");
  Tensor value(tensorflow::DT_INT32, {3});
  value.flat<int32_t>().setValues({1, 2, 3});
  tensorflow::TensorProto proto;
  value.AsProtoTensorContent(&proto);
  Tensor made;
  ASSERT_TRUE(devices[0]->MakeTensorFromProto(proto, {}, &made).ok());
  EXPECT_EQ(made.DebugString(), value.DebugString());
  proto.set_tensor_content("too short");
  const absl::Status malformed = devices[0]->MakeTensorFromProto(proto, {}, &made);
  EXPECT_TRUE(absl::IsInvalidArgument(malformed)) << malformed;
  EXPECT_TRUE(absl::StrContains(malformed.message(), "int32")) << malformed;
  EXPECT_TRUE(absl::StrContains(malformed.message(), "device:TPU:0")) << malformed;
}

TEST_F(VirtualDeviceTest, OnlyCoresHaveThreadsOfTheirOwn) {
  EXPECT_NE(Create("TPU")[0]->tensorflow_device_thread_pool(), nullptr);
  EXPECT_EQ(Create("TPU_SYSTEM")[0]->tensorflow_device_thread_pool(), nullptr);
  EXPECT_TRUE(Create("TPU")[0]->Sync().ok());
}

}  // namespace
}  // namespace tf_tpu_ext
