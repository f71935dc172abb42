#include "cc/kernels/make_program.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cc/base/process.h"
#include "cc/base/slow_notice.h"
#include "cc/compiler/build/xla_build.h"
#include "cc/runtime/program_memory.h"
#include "xla/hlo/builder/xla_computation.h"
#include "xla/service/hlo.pb.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

std::string NameAndSize(const std::string& name, const xla::XlaComputation& computation) {
  int64_t instructions = 0;
  for (const xla::HloComputationProto& each : computation.proto().computations()) {
    instructions += each.instructions_size();
  }
  return absl::StrCat(name, " (", instructions, " instructions)");
}

}  // namespace

absl::StatusOr<std::shared_ptr<Program>> MakeProgram(
    const LoweredModule& lowered, const tensorflow::tpu::TPUCompileMetadataProto& metadata,
    int64_t id, CompilationRecord* record) {
  const SlowNotice notice("compiling", NameAndSize(record->name, *lowered.result.computation),
                          NoticeStream::StandardError());
  const absl::Time start = absl::Now();
  const auto note_time = absl::MakeCleanup([&] { record->building = absl::Now() - start; });
  TF_ASSIGN_OR_RETURN(std::shared_ptr<const CompiledProgram> compiled,
                      BuildProgram(lowered, metadata, id, record));
  record->bytes = SizeInMemory(*compiled);
  record->memory = MemoryOfRun(*compiled);
  return Program::Create(*Process::Get().program_services, std::move(compiled));
}

}  // namespace tf_tpu_ext
