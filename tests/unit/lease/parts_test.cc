// Parts of leases, and parts of parts: the owner of their bytes when an enclosing lease ends.
#include <gtest/gtest.h>

#include "support/lease_fixture.h"

namespace innkeeper::lease {
namespace {

class LeaseParts : public LeaseFixture {
 protected:
  LeaseParts() : LeaseFixture(idle_machine(1, GiB(100))) {}
  Result<Lease> part(const Lease& whole, Bytes bytes) {
    Request request = share(bytes);
    request.inside = whole.id();
    return arbiter_.acquire(request, machine_);
  }
};

TEST_F(LeaseParts, WhenTheMiddleEndsAPartIsTheNextOnes) {
  Lease outer = arbiter_.acquire(share(GiB(80)), machine_).value();
  Lease middle = part(outer, GiB(60)).value();
  Lease inner = part(middle, GiB(50)).value();
  EXPECT_EQ(available(), GiB(20));
  EXPECT_TRUE(part(outer, GiB(20)).ok()) << "the inner one is no part of the outer one yet";
  middle.release();
  EXPECT_EQ(available(), GiB(20)) << "and counts on its own";
  EXPECT_FALSE(part(outer, GiB(31)).ok()) << "what it has is promised twice";
  EXPECT_TRUE(part(outer, GiB(30)).ok());
  EXPECT_TRUE(arbiter_.resize(inner, GiB(70), machine_).ok());
  EXPECT_FALSE(arbiter_.resize(inner, GiB(81), machine_).ok());
  EXPECT_FALSE(arbiter_.resize(outer, GiB(69), machine_).ok()) << "below what it has leased on";
  outer.release();
  EXPECT_EQ(available(), GiB(30));
}

// The outermost lease ends first, then the middle one: nothing encloses the inner one any more.
TEST_F(LeaseParts, WhenTheOutermostEndsTheMiddleStandsForAll) {
  Lease outer = arbiter_.acquire(share(GiB(80)), machine_).value();
  Lease middle = part(outer, GiB(60)).value();
  const Lease inner = part(middle, GiB(50)).value();
  outer.release();
  EXPECT_EQ(available(), GiB(40));
  middle.release();
  EXPECT_EQ(available(), GiB(50));
}

TEST_F(LeaseParts, AreOnlySoDeep) {
  std::vector<Lease> all;
  all.push_back(arbiter_.acquire(share(GiB(10)), machine_).value());
  for (size_t depth = 1; depth <= kMaxWholes; ++depth) all.push_back(part(all.back(), GiB(10)).value());
  const Status refused = part(all.back(), GiB(10)).status();
  EXPECT_EQ(refused.code(), Code::invalid_argument);
  EXPECT_NE(refused.message().find("16 deep"), std::string::npos) << refused.message();
}

TEST_F(LeaseParts, CanBeResizedWhenTheirWholeHasEnded) {
  Lease outer = arbiter_.acquire(share(GiB(20)), machine_).value();
  Lease inner = part(outer, GiB(10)).value();
  outer.release();
  const Lease other = arbiter_.acquire(share(GiB(30)), machine_).value();
  const Status shrunk = arbiter_.resize(inner, GiB(5), machine_);
  EXPECT_TRUE(shrunk.ok()) << shrunk.message();
  EXPECT_EQ(available(), GiB(65));
  EXPECT_TRUE(arbiter_.resize(inner, GiB(70), machine_).ok());
  EXPECT_EQ(arbiter_.resize(inner, GiB(71), machine_).code(), Code::busy);
}

}  // namespace
}  // namespace innkeeper::lease
