//! Schedule of server listings: decisions only, time and randomness are passed in.
//!
//! Tenants take turns, and each has at most a quarter of the slots. Servers whose last listings worked have half of the
//! slots to themselves. So no number of silent servers makes others lose the state `connected`.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use crate::domain::backoff::Backoff;
use crate::domain::id::{ServerId, TenantId};
use crate::domain::shares::{Amount, Shares, TENANT_PART};
use crate::store::DueServer;

/// Backoff after the first failure; doubles with each further one.
const PAUSE_MIN: Duration = Duration::from_secs(2);
/// Successful listings in a row before a server that failed counts as steady again.
const STEADY_AFTER: u8 = 3;

/// Parameters of the schedule.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListingPace {
    /// Interval between listings of a server that works.
    pub(super) interval: Duration,
    /// Interval between fetches of web pages that work.
    pub(super) page_interval: Duration,
    /// Longest backoff after failures.
    pub(super) pause_max: Duration,
    /// Slots: most listings at the same time.
    pub(super) places: usize,
    /// Time after which a listing counts as lost, and its slot is free.
    pub(super) lost_after: Duration,
}

impl ListingPace {
    fn interval_of(&self, server: &DueServer) -> Duration {
        if server.is_pages { self.page_interval } else { self.interval }
    }
}

/// Result of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListingEnd {
    /// The listing was stored.
    Worked,
    /// The server did not answer, or gave a wrong answer.
    Failed,
    /// The database or this replica prevented the listing, which says nothing about the server.
    Untold,
    /// The listing was stored, but its additions and removals are held back for this long.
    Held(Duration),
}

#[derive(Debug)]
struct Entry {
    server: DueServer,
    due: Instant,
    /// Backoff since the last listing that worked; `None` if no listing failed since then.
    failures: Option<Backoff>,
    /// Successful listings that are missing until the server is steady.
    unsteady: u8,
    running: Option<Instant>,
    /// Number of the last comparison with the database that found the server.
    seen: u64,
}

/// All enabled servers, each with the time of its next listing.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    entries: HashMap<ServerId, Entry>,
    looks: u64,
    /// Tenant that got the last slot.
    last: Option<TenantId>,
}

impl Schedule {
    /// Begins a comparison with the database: [`Schedule::see`] adds each server, [`Schedule::seen`] ends it.
    pub(super) fn look(&mut self) {
        self.looks += 1;
    }

    /// Adds an enabled server. It is due now if it is new, changed, or found connected by another replica.
    pub(super) fn see(&mut self, server: DueServer, now: Instant) {
        let unsteady = if server.is_connected { 0 } else { STEADY_AFTER };
        let fresh = |server| Entry { server, due: now, failures: None, unsteady, running: None, seen: 0 };
        let entry = match self.entries.remove(&server.server) {
            Some(entry) if entry.server.version == server.version => {
                let is_news = entry.failures.is_some() && server.is_connected && entry.running.is_none();
                if is_news { fresh(server) } else { Entry { server, ..entry } }
            }
            // the slot stays taken until that listing has ended
            Some(entry) => Entry { running: entry.running, ..fresh(server) },
            None => fresh(server),
        };
        self.entries.insert(entry.server.server, Entry { seen: self.looks, ..entry });
    }

    /// Removes the servers that the comparison did not find.
    pub(super) fn seen(&mut self) {
        self.entries.retain(|_, entry| entry.seen == self.looks);
    }

    /// Takes the servers to list now, as far as slots are free.
    pub(super) fn take(&mut self, now: Instant, pace: &ListingPace) -> Vec<DueServer> {
        self.give_up_lost(now, pace);
        let mut places =
            Places::of(self.entries.values().filter(|entry| entry.running.is_some()), pace.places);
        let mut waiting: BTreeMap<TenantId, Vec<(Instant, ServerId)>> = BTreeMap::new();
        for (id, entry) in
            self.entries.iter().filter(|(_, entry)| entry.running.is_none() && entry.due <= now)
        {
            waiting.entry(entry.server.tenant).or_default().push((entry.due, *id));
        }
        for queue in waiting.values_mut() {
            // sorted so that the longest due is popped first
            queue.sort_unstable_by(|a, b| b.cmp(a));
        }
        let mut taken = Vec::new();
        while !places.are_taken() && !waiting.is_empty() {
            let Some(tenant) = self.next_tenant(&waiting) else { break };
            self.last = Some(tenant);
            let Some((_, id)) = waiting.get_mut(&tenant).and_then(Vec::pop) else {
                waiting.remove(&tenant);
                continue;
            };
            let Some(entry) = self.entries.get_mut(&id) else { continue };
            if places.admit(tenant, entry.unsteady > 0) {
                entry.running = Some(now);
                taken.push(entry.server.clone());
            }
        }
        taken
    }

    /// Notes the end of a server's listing. `chance`, from 0 to 1, spreads listings that would coincide.
    pub(super) fn done(
        &mut self,
        server: &DueServer,
        ended: ListingEnd,
        now: Instant,
        chance: f64,
        pace: &ListingPace,
    ) {
        let Some(entry) = self.entries.get_mut(&server.server).filter(|entry| entry.running.is_some()) else {
            return;
        };
        entry.running = None;
        // the listed version is not the current one, which is due already
        if entry.server.version != server.version {
            return;
        }
        entry.ended(ended, now, chance, pace);
    }

    fn give_up_lost(&mut self, now: Instant, pace: &ListingPace) {
        for entry in self.entries.values_mut() {
            if entry.running.is_some_and(|since| now.saturating_duration_since(since) >= pace.lost_after) {
                entry.running = None;
                entry.ended(ListingEnd::Failed, now, 1.0, pace);
            }
        }
    }

    /// Returns the tenant after the one that got the last slot.
    fn next_tenant<T>(&self, waiting: &BTreeMap<TenantId, T>) -> Option<TenantId> {
        use std::ops::Bound::{Excluded, Unbounded};
        let after = self.last.and_then(|last| waiting.range((Excluded(last), Unbounded)).next());
        after.or_else(|| waiting.iter().next()).map(|(tenant, _)| *tenant)
    }
}

impl Entry {
    fn ended(&mut self, ended: ListingEnd, now: Instant, chance: f64, pace: &ListingPace) {
        let chance = chance.clamp(0.0, 1.0);
        if ended == ListingEnd::Untold {
            self.due = now + PAUSE_MIN.mul_f64(1.0 + chance);
            return;
        }
        if let ListingEnd::Held(left) = ended {
            // held-back changes take another listing to be shown; the server must also stay connected until then
            (self.failures, self.due) = (None, now + left.min(pace.interval_of(&self.server)));
            return;
        }
        if ended == ListingEnd::Worked {
            self.failures = None;
            self.unsteady = self.unsteady.saturating_sub(1);
            self.due = now + pace.interval_of(&self.server).mul_f64(0.9 + 0.1 * chance);
            return;
        }
        self.unsteady = STEADY_AFTER;
        let backoff = self.failures.get_or_insert_with(|| Backoff::new(PAUSE_MIN, pace.pause_max));
        self.due = now + backoff.jittered(chance);
    }
}

/// Divisor of the slots for servers whose last listings did not all work, which may take a half. A tenant's part of them
/// is a quarter.
const UNSTEADY_PART: usize = 2;

/// Use of the slots by tenants.
struct Places {
    capacity: Amount,
    taken: Shares<TenantId>,
    unsteady: Shares<TenantId>,
}

impl Places {
    fn of<'a>(running: impl Iterator<Item = &'a Entry>, all: usize) -> Places {
        let capacity = Amount::items(all);
        let mut places = Places { capacity, taken: Shares::default(), unsteady: Shares::default() };
        for entry in running {
            places.count(entry.server.tenant, entry.unsteady > 0);
        }
        places
    }

    fn are_taken(&self) -> bool {
        self.taken.all().items >= self.capacity.items
    }

    /// Takes a slot, if the tenant may have one more of this kind.
    fn admit(&mut self, tenant: TenantId, is_unsteady: bool) -> bool {
        let has_room = |used: Amount, part| used.has_room(Amount::ONE, self.capacity, part);
        let fits = has_room(self.taken.of(&tenant), TENANT_PART)
            && (!is_unsteady
                || has_room(self.unsteady.all(), UNSTEADY_PART)
                    && has_room(self.unsteady.of(&tenant), UNSTEADY_PART * TENANT_PART));
        if fits {
            self.count(tenant, is_unsteady);
        }
        fits
    }

    fn count(&mut self, tenant: TenantId, is_unsteady: bool) {
        self.taken.take(tenant, Amount::ONE);
        if is_unsteady {
            self.unsteady.take(tenant, Amount::ONE);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    const PACE: ListingPace = ListingPace {
        interval: Duration::from_secs(30),
        page_interval: Duration::from_secs(3600),
        pause_max: Duration::from_secs(300),
        places: 16,
        lost_after: Duration::from_secs(60),
    };

    fn server(tenant: u128, number: u128, is_connected: bool) -> DueServer {
        DueServer {
            tenant: TenantId(Uuid::from_u128(tenant)),
            server: ServerId(Uuid::from_u128(tenant * 1000 + number)),
            name: format!("s{number}"),
            version: 1,
            is_connected,
            is_pages: false,
        }
    }

    fn seen(schedule: &mut Schedule, servers: &[DueServer], now: Instant) {
        schedule.look();
        for server in servers {
            schedule.see(server.clone(), now);
        }
        schedule.seen();
    }

    #[test]
    fn what_works_is_listed_every_interval() {
        let (mut schedule, mut now) = (Schedule::default(), Instant::now());
        let one = server(1, 1, true);
        seen(&mut schedule, std::slice::from_ref(&one), now);
        for chance in [0.0, 1.0] {
            assert_eq!(schedule.take(now, &PACE), std::slice::from_ref(&one));
            assert!(schedule.take(now, &PACE).is_empty(), "it runs already");
            schedule.done(&one, ListingEnd::Worked, now, chance, &PACE);
            now += PACE.interval.mul_f64(0.9 + 0.1 * chance);
            assert!(schedule.take(now - Duration::from_millis(1), &PACE).is_empty());
        }
    }

    #[test]
    fn pages_are_fetched_rarely() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        let pages = DueServer { is_pages: true, ..server(1, 1, true) };
        seen(&mut schedule, std::slice::from_ref(&pages), now);
        assert_eq!(schedule.take(now, &PACE).len(), 1);
        schedule.done(&pages, ListingEnd::Worked, now, 1.0, &PACE);
        let due = now + PACE.page_interval;
        assert!(schedule.take(due - Duration::from_millis(1), &PACE).is_empty());
        assert_eq!(schedule.take(due, &PACE).len(), 1);
    }

    #[test]
    fn failures_are_soon_tried_again_and_then_less_and_less() {
        let (mut schedule, mut now) = (Schedule::default(), Instant::now());
        let one = server(1, 1, true);
        seen(&mut schedule, std::slice::from_ref(&one), now);
        for pause_s in [2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
            assert_eq!(schedule.take(now, &PACE).len(), 1);
            schedule.done(&one, ListingEnd::Failed, now, 1.0, &PACE);
            seen(&mut schedule, &[DueServer { is_connected: false, ..one.clone() }], now);
            let pause = Duration::from_secs(pause_s);
            assert!(schedule.take(now + pause - Duration::from_millis(1), &PACE).is_empty(), "{pause_s}");
            now += pause;
        }
        assert_eq!(schedule.take(now, &PACE).len(), 1);
        schedule.done(&one, ListingEnd::Worked, now, 1.0, &PACE);
        assert!(schedule.take(now + Duration::from_secs(29), &PACE).is_empty());
    }

    #[test]
    fn what_the_database_prevented_is_soon_tried_again_and_held_against_nobody() {
        let (mut schedule, mut now) = (Schedule::default(), Instant::now());
        let one = server(1, 1, true);
        seen(&mut schedule, std::slice::from_ref(&one), now);
        for _ in 0..5 {
            assert_eq!(schedule.take(now, &PACE).len(), 1);
            schedule.done(&one, ListingEnd::Untold, now, 1.0, &PACE);
            now += PAUSE_MIN * 2;
        }
        assert_eq!(schedule.entries[&one.server].unsteady, 0);
    }

    #[test]
    fn what_is_held_back_is_listed_when_that_is_over_or_it_is_time() {
        for (left_s, pause_s) in [(5, 5), (60, 30)] {
            let (mut schedule, now) = (Schedule::default(), Instant::now());
            let one = server(1, 1, true);
            seen(&mut schedule, std::slice::from_ref(&one), now);
            assert_eq!(schedule.take(now, &PACE).len(), 1);
            schedule.done(&one, ListingEnd::Held(Duration::from_secs(left_s)), now, 1.0, &PACE);
            let due = now + Duration::from_secs(pause_s);
            assert!(schedule.take(due - Duration::from_millis(1), &PACE).is_empty(), "{left_s}");
            assert_eq!(schedule.take(due, &PACE).len(), 1);
        }
    }

    #[test]
    fn news_make_a_server_due() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        let one = server(1, 1, false);
        for news in [DueServer { is_connected: true, ..one.clone() }, DueServer { version: 2, ..one.clone() }]
        {
            seen(&mut schedule, std::slice::from_ref(&one), now);
            assert_eq!(schedule.take(now, &PACE).len(), 1);
            schedule.done(&one, ListingEnd::Failed, now, 1.0, &PACE);
            assert!(schedule.take(now, &PACE).is_empty());
            seen(&mut schedule, std::slice::from_ref(&news), now);
            assert_eq!(schedule.take(now, &PACE), std::slice::from_ref(&news));
            schedule.done(&news, ListingEnd::Worked, now, 1.0, &PACE);
            seen(&mut schedule, &[], now);
            assert!(schedule.entries.is_empty());
        }
    }

    #[test]
    fn a_change_during_a_listing_makes_it_due_again_but_never_twice_at_a_time() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        let old = server(1, 1, true);
        let new = DueServer { version: 2, ..old.clone() };
        seen(&mut schedule, std::slice::from_ref(&old), now);
        assert_eq!(schedule.take(now, &PACE).len(), 1);
        seen(&mut schedule, std::slice::from_ref(&new), now);
        assert!(schedule.take(now, &PACE).is_empty());
        schedule.done(&old, ListingEnd::Worked, now, 1.0, &PACE);
        assert_eq!(schedule.take(now, &PACE), [new]);
    }

    #[test]
    fn a_lost_listing_frees_its_place() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        let one = server(1, 1, true);
        seen(&mut schedule, std::slice::from_ref(&one), now);
        assert_eq!(schedule.take(now, &PACE).len(), 1);
        let later = now + PACE.lost_after;
        assert!(schedule.take(later, &PACE).is_empty(), "it failed, so it pauses");
        assert_eq!(schedule.take(later + PAUSE_MIN, &PACE).len(), 1);
    }

    #[test]
    fn tenants_take_turns() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        let mut servers: Vec<DueServer> = (0..200).map(|n| server(1, n, true)).collect();
        servers.extend([server(2, 1, true), server(3, 1, true)]);
        seen(&mut schedule, &servers, now);
        let first = schedule.take(now, &PACE);
        let of = |taken: &[DueServer], tenant: u128| {
            taken.iter().filter(|due| due.tenant.0.as_u128() == tenant).count()
        };
        assert_eq!((of(&first, 1), of(&first, 2), of(&first, 3)), (4, 1, 1));
        assert!(schedule.take(now, &PACE).is_empty(), "a quarter of the places, and no more");
    }

    /// Silent servers of one tenant do not delay others: all due servers elsewhere are taken at once.
    #[test]
    fn two_hundred_silent_servers_delay_nobody() {
        let (mut schedule, began) = (Schedule::default(), Instant::now());
        let mut servers: Vec<DueServer> = Vec::new();
        for hostile in 1..=4 {
            servers.extend((0..200).map(|n| server(hostile, n, true)));
        }
        for quiet in 10..40 {
            servers.extend((0..5).map(|n| server(quiet, n, true)));
        }
        seen(&mut schedule, &servers, began);
        let mut ends: Vec<(Instant, DueServer)> = Vec::new();
        let mut last_ok: HashMap<ServerId, Instant> = HashMap::new();
        let mut worst = Duration::ZERO;
        for step in 0..6000 {
            let now = began + Duration::from_millis(100) * step;
            let (ended, running) = ends.drain(..).partition(|(at, _)| *at <= now);
            ends = running;
            for (_, due) in ended {
                let is_ok = due.tenant.0.as_u128() >= 10;
                if is_ok {
                    let before = last_ok.insert(due.server, now).unwrap_or(began);
                    // in the first round everything is due, and no server has failed yet
                    if now > began + Duration::from_secs(120) {
                        worst = worst.max(now - before);
                    }
                }
                schedule.done(
                    &due,
                    if is_ok { ListingEnd::Worked } else { ListingEnd::Failed },
                    now,
                    1.0,
                    &PACE,
                );
            }
            for due in schedule.take(now, &PACE) {
                let takes = if due.tenant.0.as_u128() >= 10 { 100 } else { 20_000 };
                ends.push((now + Duration::from_millis(takes), due));
            }
        }
        assert_eq!(last_ok.len(), 150);
        assert!(worst < Duration::from_secs(45), "{worst:?}");
    }

    proptest! {
        #[test]
        fn places_are_never_exceeded(
            steps in prop::collection::vec((0_u64..40_000, 0_usize..20, any::<bool>()), 1..60),
            places in 1_usize..20,
        ) {
            let pace = ListingPace { places, ..PACE };
            let (mut schedule, mut now) = (Schedule::default(), Instant::now());
            let servers: Vec<DueServer> =
                (0..60).map(|n| server(n % 7, n, n % 3 == 0)).collect();
            seen(&mut schedule, &servers, now);
            let mut running: Vec<DueServer> = Vec::new();
            for (ms, ends, is_ok) in steps {
                now += Duration::from_millis(ms % 1000);
                for _ in 0..ends.min(running.len()) {
                    let due = running.remove(0);
                    schedule.done(&due, if is_ok { ListingEnd::Worked } else { ListingEnd::Failed }, now, 0.5, &pace);
                }
                running.extend(schedule.take(now, &pace));
                let alive = schedule.entries.values().filter(|entry| entry.running.is_some()).count();
                prop_assert!(alive <= places);
                for tenant in 0..7 {
                    let own = schedule.entries.values().filter(|entry| {
                        entry.running.is_some() && entry.server.tenant.0.as_u128() == tenant
                    });
                    prop_assert!(own.count() <= (places / 4).max(1));
                }
                // a listing that was given up no longer runs
                running.retain(|due| schedule.entries[&due.server].running.is_some());
            }
        }
    }
}
