// UCX's functions, found at run time: one build serves hosts with it and without it. Private to the ucx_* files.
#pragma once

#ifdef WIREWISE_WITH_UCX

#include <ucp/api/ucp.h>

#include <string>

namespace wirewise::comm {

struct UcxLibrary {
  decltype(&::ucp_get_version) get_version = nullptr;
  decltype(&::ucp_get_version_string) get_version_string = nullptr;
  decltype(&::ucp_config_read) config_read = nullptr;
  decltype(&::ucp_config_modify) config_modify = nullptr;
  decltype(&::ucp_config_release) config_release = nullptr;
  decltype(&::ucp_init_version) init_version = nullptr;
  decltype(&::ucp_cleanup) cleanup = nullptr;
  decltype(&::ucp_worker_create) worker_create = nullptr;
  decltype(&::ucp_worker_destroy) worker_destroy = nullptr;
  decltype(&::ucp_worker_get_address) worker_get_address = nullptr;
  decltype(&::ucp_worker_release_address) worker_release_address = nullptr;
  decltype(&::ucp_worker_get_efd) worker_get_efd = nullptr;
  decltype(&::ucp_worker_arm) worker_arm = nullptr;
  decltype(&::ucp_worker_progress) worker_progress = nullptr;
  decltype(&::ucp_worker_set_am_recv_handler) worker_set_am_recv_handler = nullptr;
  decltype(&::ucp_ep_create) ep_create = nullptr;
  decltype(&::ucp_ep_close_nbx) ep_close_nbx = nullptr;
  decltype(&::ucp_ep_flush_nbx) ep_flush_nbx = nullptr;
  decltype(&::ucp_ep_print_info) ep_print_info = nullptr;
  decltype(&::ucp_am_send_nbx) am_send_nbx = nullptr;
  decltype(&::ucp_tag_send_nbx) tag_send_nbx = nullptr;
  decltype(&::ucp_tag_recv_nbx) tag_recv_nbx = nullptr;
  decltype(&::ucp_tag_probe_nb) tag_probe_nb = nullptr;
  decltype(&::ucp_request_cancel) request_cancel = nullptr;
  decltype(&::ucp_request_check_status) request_check_status = nullptr;
  decltype(&::ucp_request_free) request_free = nullptr;
  decltype(&::ucs_status_string) status_string = nullptr;

  /// UCX's words for a status.
  [[nodiscard]] std::string words(ucs_status_t status) const { return status_string(status); }
};

/// Loads UCX for the life of the process. Throws Failed naming what is missing and the package that has it.
[[nodiscard]] UcxLibrary load_ucx();

}  // namespace wirewise::comm

#endif
