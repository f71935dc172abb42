#include "cc/data/imported_function.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/platform/errors.h"

// The linker's tables hold addresses as integers.
// NOLINTBEGIN(performance-no-int-to-ptr)
namespace tf_tpu_ext {

#if defined(__x86_64__)
constexpr uint32_t kCalled = R_X86_64_JUMP_SLOT;
constexpr uint32_t kReferred = R_X86_64_GLOB_DAT;
#elif defined(__aarch64__)
constexpr uint32_t kCalled = R_AARCH64_JUMP_SLOT;
constexpr uint32_t kReferred = R_AARCH64_GLOB_DAT;
#else
#error "imported_function.cc knows the import tables of x86-64 and AArch64 only."
#endif

namespace {

using Dynamic = ElfW(Dyn);
using ProgramHeader = ElfW(Phdr);
using Relocation = ElfW(Rela);
using Symbol = ElfW(Sym);

struct Range {
  uintptr_t begin = 0;
  uintptr_t end = 0;

  bool Contains(uintptr_t address) const { return begin <= address && address < end; }
};

// The tables in which a library lists what it imports.
struct Imports {
  const Symbol* symbols = nullptr;
  const char* names = nullptr;
  const Relocation* others = nullptr;
  size_t others_bytes = 0;
  const Relocation* calls = nullptr;
  size_t calls_bytes = 0;
};

// The linker replaced the offsets in `entry` with addresses when it loaded the library.
Imports ReadImports(const Dynamic* entry) {
  Imports imports;
  for (; entry->d_tag != DT_NULL; ++entry) {
    const uintptr_t value = entry->d_un.d_ptr;
    if (entry->d_tag == DT_SYMTAB) imports.symbols = reinterpret_cast<const Symbol*>(value);
    if (entry->d_tag == DT_STRTAB) imports.names = reinterpret_cast<const char*>(value);
    if (entry->d_tag == DT_RELA) imports.others = reinterpret_cast<const Relocation*>(value);
    if (entry->d_tag == DT_RELASZ) imports.others_bytes = value;
    if (entry->d_tag == DT_JMPREL) imports.calls = reinterpret_cast<const Relocation*>(value);
    if (entry->d_tag == DT_PLTRELSZ) imports.calls_bytes = value;
  }
  return imports;
}

}  // namespace

// The state of the search through the loaded libraries.
struct EntryFinder {
  const char* symbol = nullptr;
  uintptr_t replacement = 0;
  std::vector<ImportedFunction::Entry> found;

  static int Visit(dl_phdr_info* library, size_t /*size*/, void* finder) {
    static_cast<EntryFinder*>(finder)->Search(*library);
    return 0;
  }

  void Search(const dl_phdr_info& library) {
    const Dynamic* dynamic = nullptr;
    Range read_only;
    for (int i = 0; i < library.dlpi_phnum; ++i) {
      const ProgramHeader& header = library.dlpi_phdr[i];
      const uintptr_t begin = library.dlpi_addr + header.p_vaddr;
      const Range range{begin, begin + header.p_memsz};
      if (header.p_type == PT_LOAD && range.Contains(replacement)) return;
      if (header.p_type == PT_DYNAMIC) dynamic = reinterpret_cast<const Dynamic*>(begin);
      if (header.p_type == PT_GNU_RELRO) read_only = range;
    }
    if (dynamic == nullptr) return;
    const Imports imports = ReadImports(dynamic);
    // The vdso, whose offsets nobody replaces with addresses, imports nothing.
    Search(library, imports, imports.others, imports.others_bytes, read_only);
    Search(library, imports, imports.calls, imports.calls_bytes, read_only);
  }

  void Search(const dl_phdr_info& library, const Imports& imports, const Relocation* table,
              size_t bytes, const Range& read_only) {
    if (table == nullptr || imports.symbols == nullptr || imports.names == nullptr) return;
    const size_t size = bytes / sizeof(Relocation);
    for (const Relocation* entry = table; entry < table + size; ++entry) {
      const uint32_t type = ELF64_R_TYPE(entry->r_info);
      if (type != kCalled && type != kReferred) continue;
      const Symbol& imported = imports.symbols[ELF64_R_SYM(entry->r_info)];
      if (std::strcmp(imports.names + imported.st_name, symbol) != 0) continue;
      const uintptr_t slot = library.dlpi_addr + entry->r_offset;
      found.push_back({reinterpret_cast<void**>(slot), *reinterpret_cast<void**>(slot),
                       read_only.Contains(slot)});
    }
  }
};

absl::StatusOr<ImportedFunction> ImportedFunction::Redirect(void* function, void* replacement) {
  Dl_info info;
  if (dladdr(function, &info) == 0 || info.dli_sname == nullptr || info.dli_saddr != function) {
    return absl::NotFoundError(
        "The dynamic linker knows no name for the function to redirect; a function that the "
        "library exports was expected.");
  }
  EntryFinder finder{info.dli_sname, reinterpret_cast<uintptr_t>(replacement), {}};
  dl_iterate_phdr(&EntryFinder::Visit, &finder);
  if (finder.found.empty()) {
    return absl::NotFoundError(
        absl::StrCat("No loaded library calls ", info.dli_sname, " of ", info.dli_fname,
                     " by way of its import table; at least one was expected to."));
  }
  ImportedFunction redirected;
  for (const Entry& entry : finder.found) {
    if (absl::Status written = Write(entry, replacement); !written.ok()) {
      redirected.Restore().IgnoreError();
      return written;
    }
    redirected.entries_.push_back(entry);
  }
  return redirected;
}

absl::Status ImportedFunction::Restore() {
  while (!entries_.empty()) {
    const Entry& entry = entries_.back();
    TF_RETURN_IF_ERROR(Write(entry, entry.former));
    entries_.pop_back();
  }
  return absl::OkStatus();
}

absl::Status ImportedFunction::Write(const Entry& entry, void* value) {
  const uintptr_t page_size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  void* page = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(entry.slot) & ~(page_size - 1));
  if (entry.read_only && mprotect(page, page_size, PROT_READ | PROT_WRITE) != 0) {
    return absl::ErrnoToStatus(errno, "An import table could not be made writable");
  }
  // Other threads may call through the entry: they must never see half a pointer.
  reinterpret_cast<std::atomic<void*>*>(entry.slot)->store(value, std::memory_order_release);
  if (entry.read_only && mprotect(page, page_size, PROT_READ) != 0) {
    return absl::ErrnoToStatus(errno, "An import table could not be made read-only again");
  }
  return absl::OkStatus();
}

}  // namespace tf_tpu_ext
// NOLINTEND(performance-no-int-to-ptr)
