// Fixtures for tests of the queue: a queue of the test's own, and the actions that most tests need.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>

#include "queue/life.h"
#include "queue/queue.h"
#include "queue/store.h"
#include "support/soon.h"
#include "support/temporary_queue_directory.h"

namespace innkeeper::queue {

using test::content;
using test::good;
using test::shell;
using test::soon;
using test::TemporaryQueueDirectory;

// An open directory without a queue: for tests that read and write its files themselves.
class TemporaryQueueDirectoryTest : public testing::Test {
 protected:
  Store store(Durable durable = Durable::processes) const { return good(Store::open(*directory_, durable)); }
  // A job that does nothing.
  static JobSpec spec() {
    JobSpec job;
    job.command = {"/bin/true"};
    job.directory = "/";
    return job;
  }
  // A file of the test's own, outside the queue's directory.
  std::string path(const char* name) const { return (outer_.outer() / name).string(); }
  // The process number of the supervisor of the job's first attempt; 0 until the attempt has begun.
  pid_t supervisor(JobId id) const {
    const Life life = look(directory_->life(id, 1));
    return life.began ? static_cast<pid_t>(life.began->supervisor.pid) : 0;
  }

  TemporaryQueueDirectory outer_;
  std::shared_ptr<const QueueDirectory> directory_ = good(QueueDirectory::open(outer_.path().string()));
};

// An open queue, with a real runner.
class QueueFixture : public TemporaryQueueDirectoryTest {
 protected:
  static constexpr std::chrono::seconds kLong{60};  // Longest time that a test waits for a job.

  JobId add(const JobSpec& spec) { return good(queue_.add(spec)).at(0); }
  JobLine wait(JobId id) { return good(queue_.wait({id}, kLong)).at(0); }

  Queue queue_ = outer_.queue();
};

}  // namespace innkeeper::queue
