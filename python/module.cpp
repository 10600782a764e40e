// The extension module wirewise._C: the backend class, made from the store of a process group, and the error type as Python
// exceptions. All calls of an existing backend go through the bindings that torch has for its base class.
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#include <pybind11/chrono.h>

#include <array>
#include <string>

#include "wirewise/base/error.h"
#include "wirewise/torch/c10d_backend.h"

namespace py = pybind11;

namespace {

/// An intrusive_ptr that lets go without Python's lock: the end of a group waits for its threads, and these may be about to run a
/// callback that is Python code.
template <typename T>
class ReleasingPtr {
 public:
  ReleasingPtr() = default;
  explicit ReleasingPtr(T* object) : pointer_(c10::intrusive_ptr<T>::unsafe_steal_from_new(object)) {}
  // What conversion of a c10::intrusive_ptr needs: not explicit.
  ReleasingPtr(c10::intrusive_ptr<T> pointer) noexcept : pointer_(std::move(pointer)) {}
  ReleasingPtr(const ReleasingPtr&) = default;
  ReleasingPtr(ReleasingPtr&&) noexcept = default;
  ReleasingPtr& operator=(const ReleasingPtr&) = default;
  ReleasingPtr& operator=(ReleasingPtr&&) noexcept = default;
  ~ReleasingPtr() {
    if (!pointer_) return;
    if (PyGILState_Check() != 0) {
      const py::gil_scoped_release unlocked;
      pointer_.reset();
    } else {
      pointer_.reset();
    }
  }
  [[nodiscard]] T* get() const noexcept { return pointer_.get(); }

 private:
  c10::intrusive_ptr<T> pointer_;  // the only member: code that expects an intrusive_ptr reads the holder as one
};

/// The Python exception of each ErrorKind. They live as long as the interpreter.
std::array<PyObject*, 7> exceptions{};

constexpr std::array<std::pair<wirewise::ErrorKind, const char*>, 7> kExceptionNames{{
    {wirewise::ErrorKind::kBadInput, "BadInputError"},
    {wirewise::ErrorKind::kFailed, "FailedError"},
    {wirewise::ErrorKind::kMismatch, "MismatchError"},
    {wirewise::ErrorKind::kPeerLost, "PeerLostError"},
    {wirewise::ErrorKind::kTimeout, "TimeoutError"},
    {wirewise::ErrorKind::kStore, "StoreError"},
    {wirewise::ErrorKind::kAborted, "AbortedError"},
}};

void load_exceptions() {
  const py::module_ errors = py::module_::import("wirewise._errors");
  for (const auto& [kind, name] : kExceptionNames) {
    exceptions[static_cast<std::size_t>(kind)] = py::object(errors.attr(name)).release().ptr();
  }
}

void translate(std::exception_ptr error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const wirewise::Error& known) {
    PyErr_SetString(exceptions[static_cast<std::size_t>(known.kind())], known.what());
  }
}

}  // namespace

PYBIND11_DECLARE_HOLDER_TYPE(T, ReleasingPtr<T>, true)

PYBIND11_MODULE(_C, module) {
  module.doc() = "The wirewise backend of torch.distributed.";
  module.attr("__version__") = WIREWISE_VERSION;
  module.attr("built_for_torch") = std::to_string(TORCH_VERSION_MAJOR) + "." + std::to_string(TORCH_VERSION_MINOR);
  load_exceptions();
  py::register_exception_translator(&translate);

  using wirewise::WirewiseBackend;
  const py::object base = py::module_::import("torch._C._distributed_c10d").attr("Backend");
  py::class_<WirewiseBackend, ReleasingPtr<WirewiseBackend>>(module, "WirewiseBackend", base)
      .def(py::init([](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, std::chrono::milliseconds timeout) {
             return ReleasingPtr<WirewiseBackend>(WirewiseBackend::create(store, rank, size, timeout));
           }),
           py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout") = wirewise::WirewiseBackend::Milliseconds(600'000),
           py::call_guard<py::gil_scoped_release>());
}
