#include "cc/compiler/lower/op_lines.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cc/compiler/lower/module_locations.h"
#include "cc/compiler/lower/module_places.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/node_def.pb.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::FunctionLibraryDefinition;

// No program nests calls this deeply. Functions may call themselves.
constexpr int kDeepestCall = 64;
constexpr char kCalled[] = "f";

// Strips the number that makes the op's name unique.
absl::string_view WithoutNumber(absl::string_view op) {
  while (!op.empty() && absl::ascii_isdigit(op.back())) op.remove_suffix(1);
  return absl::StripSuffix(op, "_");
}

}  // namespace

OpLines::OpLines(const std::string& function, const FunctionLibraryDefinition& library)
    : entry_(function) {
  std::vector<std::string> open = {function};
  while (!open.empty()) {
    const std::string name = std::move(open.back());
    open.pop_back();
    if (functions_.count(name) > 0) continue;
    Read(name, library);
    const Function& read = functions_[name];
    open.insert(open.end(), read.bodies.begin(), read.bodies.end());
    for (const auto& [call, called] : read.calls) open.push_back(called);
  }
}

void OpLines::Read(const std::string& name, const FunctionLibraryDefinition& library) {
  Function& function = functions_[name];
  const auto record = library.FindRecord(name);
  if (record == nullptr) return;
  const tensorflow::StackTracesMap& traces = record->stack_traces();
  for (const tensorflow::NodeDef& node : record->fdef().node_def()) {
    const auto trace = traces.find(node.name());
    function.ops[node.name()] =
        trace == traces.end() ? SourceLine() : UserLine(trace->second.get());
    for (const auto& [attribute, value] : node.attr()) {
      std::vector<std::string> called;
      if (value.has_func()) called.push_back(value.func().name());
      for (const auto& each : value.list().func()) called.push_back(each.name());
      if (attribute == kCalled && called.size() == 1) {
        function.calls[node.name()] = called.front();
      } else {
        function.bodies.insert(function.bodies.end(), called.begin(), called.end());
      }
    }
  }
}

OpLines OpLines::OfModule(std::string* module) {
  OpLines lines;
  auto& ops = lines.functions_[lines.entry_].ops;
  const ModuleLocations locations(*module);
  ModulePlaces places(locations);
  std::vector<std::string> changed;
  for (absl::string_view line : absl::StrSplit(*module, '\n')) {
    changed.emplace_back(line);
    if (!ModuleLocations::AliasAt(line).empty()) continue;
    const absl::string_view location = ModuleLocations::OfOp(line);
    const ModulePlace place = places.At(location);
    if (place.name.empty()) continue;
    std::string name = place.name;
    for (int number = 1;; ++number) {
      const auto [known, added] = ops.emplace(name, place.line);
      if (added || known->second.Text() == place.line.Text()) break;
      name = absl::StrCat(place.name, "_", number);
    }
    if (name == place.name) continue;
    line.remove_suffix(location.size() + 1);  // the parenthesis, too
    changed.back() = absl::StrCat(line, "\"", name, "\")");
  }
  *module = absl::StrJoin(changed, "\n");
  return lines;
}

SourceLine OpLines::Find(absl::string_view op) const {
  if (SourceLine found = FindIn(entry_, op, 0); found.known()) return found;
  return FindIn(entry_, WithoutNumber(op), 0);
}

SourceLine OpLines::FindIn(const std::string& name, absl::string_view op, int depth) const {
  const auto function = functions_.find(name);
  if (function == functions_.end() || depth > kDeepestCall) return {};
  const auto& [ops, calls, bodies] = function->second;
  if (const auto found = ops.find(op); found != ops.end()) return found->second;
  for (size_t slash = op.find('/'); slash != op.npos; slash = op.find('/', slash + 1)) {
    const auto call = calls.find(op.substr(0, slash));
    if (call == calls.end()) continue;
    SourceLine found = FindIn(call->second, op.substr(slash + 1), depth + 1);
    if (!found.known()) found = ops.find(call->first)->second;
    if (found.known()) return found;
  }
  for (const std::string& body : bodies) {
    if (SourceLine found = FindIn(body, op, depth + 1); found.known()) return found;
  }
  return {};
}

}  // namespace tf_tpu_ext
