#include "lease/lease.h"

#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "lease/process.h"

namespace innkeeper::lease {

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    release();
    file_ = std::move(other.file_);
  }
  return *this;
}

const std::string& Lease::id() const {
  static const std::string none;
  return file_ ? file_->id : none;
}

void Lease::refresh() const {
  if (held()) (void)reread(*file_);  // If the record cannot be read, the last one stays.
}

std::vector<Claim> Lease::claims() const {
  refresh();
  return file_ ? file_->record.claims : std::vector<Claim>();
}

bool Lease::exclusive() const { return file_ && file_->record.exclusive; }

int64_t Lease::expires_ns() const {
  refresh();
  return file_ ? file_->record.expires_ns : 0;
}

std::vector<std::string> Lease::gpus() const {
  std::vector<std::string> uuids;
  for (const Claim& claim : claims()) uuids.push_back(claim.uuid);
  return uuids;
}

std::string Lease::uuids() const {
  std::string list;
  for (const Claim& claim : claims()) list += (list.empty() ? "" : ",") + claim.uuid;
  return list;
}

bool Lease::intact() const {
  refresh();
  return held() && !file_->record.expired(machine_clock_ns()) && file_->named();
}

bool Lease::lost() const {
  if (!held() || !file_->lost()) return false;
  refresh();
  return !file_->record.expired(machine_clock_ns());
}

void Lease::release() {
  if (!file_) return;
  remove(*file_);
  file_.reset();
}

Status Lease::share_with_children() {
  if (!held() || !file_->file.keep_in_children(false))
    return Status(Code::unavailable, "there is no lease to share");
  return Status::okay();
}

Result<int> Lease::share_through_exec() {
  if (!held()) return Status(Code::unavailable, "there is no lease to share");
  if (!file_->file.keep_in_children(true))
    return Status(Code::io_error, std::string("cannot pass a lease on: ") + std::strerror(errno));
  return file_->file.fd();
}

void Lease::leave() {
  if (file_) file_->file.close();
  file_.reset();
}

}  // namespace innkeeper::lease
