//! Plan of a listing: next states of definitions, within the tenant's quotas.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::FromRow;

use super::pinning::Pinning;
use super::{Discovered, Tally};
use crate::domain::damping::Damping;
use crate::domain::era::Era;
use crate::domain::offer::OfferKind;
use crate::domain::quota::Room;
use crate::domain::server::ConnectionState;
use crate::domain::tool::PinState;
use crate::store::Stored;

/// Stored columns of a tool that a listing needs.
#[derive(FromRow)]
pub(super) struct Known {
    name: String,
    pin: String,
    state: Stored<PinState>,
    approved_pin: Option<String>,
    /// Bytes of the approved definition; 0 if none is kept.
    approved_bytes: i32,
    removed: bool,
}

impl Known {
    /// Returns the bytes that a definition takes up that is not approved: at least those of the approved one, which is
    /// kept for comparison.
    fn bytes_beside(&self, definition: &str) -> usize {
        definition.len().max(usize::try_from(self.approved_bytes).unwrap_or(0))
    }
}

/// Columns of a server's row that a listing needs.
#[derive(FromRow)]
pub(super) struct ListedServer {
    quarantined: bool,
    auto_approve: bool,
    baselined: bool,
    /// Kinds of offers whose baseline is set.
    offers_baselined: Vec<Stored<OfferKind>>,
    pub(super) connection: Stored<ConnectionState>,
    pub(super) era: Option<Stored<Era>>,
    pub(super) rev: i64,
    returned_at: Option<DateTime<Utc>>,
    returned_before: Option<DateTime<Utc>>,
    holds: i32,
    held_until: Option<DateTime<Utc>>,
    #[sqlx(flatten)]
    pub(super) tally: Tally,
    /// Current time of the database, whose clock also set the times above.
    pub(super) now: DateTime<Utc>,
}

impl ListedServer {
    pub(super) fn damping(&self) -> Damping {
        Damping {
            returned_at: self.returned_at,
            returned_before: self.returned_before,
            holds: u32::try_from(self.holds).unwrap_or(0),
            held_until: self.held_until,
        }
    }

    /// Returns how pins of offers are set by a listing. `sets_baseline`: the listing sets the baseline of the tools.
    pub(super) fn pinning(&self, sets_baseline: bool) -> Pinning {
        let is_released = !self.quarantined && (self.baselined || sets_baseline);
        let is_set = |kind: OfferKind| self.offers_baselined.contains(&kind.into());
        let unset = OfferKind::ALL.into_iter().filter(|kind| sets_baseline || !is_set(*kind));
        Pinning {
            takes_all: self.auto_approve && !self.quarantined,
            baselines: if is_released { unset.collect() } else { Vec::new() },
        }
    }

    /// Returns the time left until `then`, by the database's clock; zero if that is over.
    pub(super) fn until(&self, then: DateTime<Utc>) -> Duration {
        then.signed_duration_since(self.now).to_std().unwrap_or_default()
    }
}

/// Most tool names ever remembered of one server, disappeared ones included.
const NAMES_MAX: usize = 50_000;

/// Tools that a listing writes and removes.
pub(super) struct Plan<'a> {
    pub(super) write: Vec<(&'a Discovered, PinState)>,
    pub(super) remove: Vec<&'a str>,
    pub(super) sets_baseline: bool,
    /// Names of tools that exceed a quota, with that quota.
    pub(super) left_out: Vec<(&'a str, &'static str)>,
}

impl<'a> Plan<'a> {
    pub(super) fn make(server: &ListedServer, known: &'a [Known], found: &'a [Discovered]) -> Plan<'a> {
        let by_name: HashMap<&str, &Known> = known.iter().map(|tool| (tool.name.as_str(), tool)).collect();
        let sets_baseline = !server.quarantined && !server.baselined;
        let take = sets_baseline || (server.auto_approve && !server.quarantined);
        let mut room = NAMES_MAX.saturating_sub(known.len());
        let write = found
            .iter()
            .filter_map(|tool| {
                let known = by_name.get(tool.name.as_str()).copied();
                if known.is_none() {
                    // a server that keeps inventing names uses up only its own quota of names
                    room = room.checked_sub(1)?;
                }
                let state = next_state(known, tool, take);
                let same = known.is_some_and(|k| !k.removed && k.pin == tool.pin && k.state == state);
                (!same).then_some((tool, state))
            })
            .collect();
        let names: HashSet<&str> = found.iter().map(|tool| tool.name.as_str()).collect();
        let remove = known
            .iter()
            .filter(|tool| !tool.removed && !names.contains(tool.name.as_str()))
            .map(|tool| tool.name.as_str())
            .collect();
        Plan { write, remove, sets_baseline, left_out: Vec::new() }
    }

    /// Leaves out tools that exceed the quotas. Unchanged tools take precedence, then changed ones, then new ones. A
    /// tool whose changed definition does not fit is removed: the server does not offer the old definition any more.
    pub(super) fn fit(&mut self, known: &'a [Known], found: &[Discovered], mut room: Room) {
        let known: HashMap<&str, &Known> = known.iter().map(|tool| (tool.name.as_str(), tool)).collect();
        let present: HashSet<&str> =
            known.values().filter(|tool| !tool.removed).map(|tool| tool.name.as_str()).collect();
        let bytes = |tool: &Discovered| {
            let known = known.get(tool.name.as_str());
            known.map_or(tool.definition.len(), |known| known.bytes_beside(&tool.definition))
        };
        let written: HashSet<&str> = self.write.iter().map(|(tool, _)| tool.name.as_str()).collect();
        for tool in found {
            let name = tool.name.as_str();
            if present.contains(name) && !written.contains(name) {
                room.keep(bytes(tool));
            }
        }
        let write = std::mem::take(&mut self.write);
        let (changed, new): (Vec<_>, Vec<_>) =
            write.into_iter().partition(|(tool, _)| present.contains(tool.name.as_str()));
        for (tool, state) in changed.into_iter().chain(new) {
            let bytes = if state == PinState::Approved { tool.definition.len() } else { bytes(tool) };
            match room.take(bytes) {
                Ok(()) => self.write.push((tool, state)),
                Err(quota) => self.left_out.push((&tool.name, quota)),
            }
        }
        self.remove.extend(self.left_out.iter().map(|(name, _)| *name).filter(|name| present.contains(name)));
    }

    /// Returns the tools that would be shown again after they had disappeared, or had changed to an unapproved
    /// definition.
    pub(super) fn returning(&self, known: &[Known]) -> Vec<&'a str> {
        let gone: HashSet<&str> = known
            .iter()
            .filter(|tool| tool.removed || tool.state == PinState::Changed)
            .map(|tool| tool.name.as_str())
            .collect();
        let written = self.write.iter().filter(|(_, state)| *state == PinState::Approved);
        written.map(|(tool, _)| tool.name.as_str()).filter(|name| gone.contains(name)).collect()
    }

    /// Leaves out the tools `names`, until damping lets them in.
    pub(super) fn hold(&mut self, names: &[&str]) {
        let names: HashSet<&str> = names.iter().copied().collect();
        self.write.retain(|(tool, _)| !names.contains(tool.name.as_str()));
    }
}

/// Returns the state of a discovered definition. A block stays, and the approved pin is approved. A baseline or
/// automatic approval takes the rest. Otherwise the definition is changed, or pending if nothing was ever approved
/// under that name.
fn next_state(known: Option<&Known>, tool: &Discovered, take: bool) -> PinState {
    let approved = known.and_then(|k| k.approved_pin.as_deref());
    let is_blocked = known.is_some_and(|k| k.state == PinState::Blocked);
    PinState::of(&tool.pin, if take { Some(&tool.pin) } else { approved }, is_blocked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(pin: &str, state: PinState, approved: Option<&str>) -> Known {
        Known {
            name: "t".into(),
            pin: pin.into(),
            state: state.into(),
            approved_pin: approved.map(str::to_owned),
            approved_bytes: 0,
            removed: false,
        }
    }

    fn server(auto_approve: bool) -> ListedServer {
        ListedServer {
            quarantined: false,
            auto_approve,
            baselined: true,
            offers_baselined: Vec::new(),
            connection: ConnectionState::Connected.into(),
            era: None,
            rev: 1,
            returned_at: None,
            returned_before: None,
            holds: 0,
            held_until: None,
            tally: Tally::default(),
            now: DateTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn what_is_shown_again_can_be_held_back_and_nothing_else() {
        let named = |name: &str, pin: &str, state, removed| Known {
            name: name.into(),
            removed,
            ..known(pin, state, Some("a"))
        };
        let known = [
            named("stays", "a", PinState::Approved, false),
            named("gone", "a", PinState::Approved, true),
            named("gone-and-other", "a", PinState::Approved, true),
            named("blocked", "a", PinState::Blocked, true),
            named("back", "b", PinState::Changed, false),
            named("other-again", "b", PinState::Changed, false),
            named("grows", "a", PinState::Approved, false),
        ];
        let found = |name: &str, pin: &str| Discovered {
            name: name.into(),
            definition: "{}".into(),
            pin: pin.into(),
        };
        let listing = [
            found("stays", "a"),
            found("gone", "a"),
            found("gone-and-other", "b"),
            found("blocked", "a"),
            found("back", "a"),
            found("other-again", "c"),
            found("grows", "b"),
            found("new", "a"),
        ];
        let mut plan = Plan::make(&server(false), &known, &listing);
        let returning = plan.returning(&known);
        assert_eq!(returning, ["gone", "back"]);
        plan.hold(&returning);
        let written: Vec<&str> = plan.write.iter().map(|(tool, _)| tool.name.as_str()).collect();
        assert_eq!(written, ["gone-and-other", "blocked", "other-again", "grows", "new"]);
        assert!(plan.returning(&known).is_empty());
        let plan = Plan::make(&server(true), &known, &listing);
        assert_eq!(plan.returning(&known), ["gone", "gone-and-other", "back", "other-again"]);
    }

    #[test]
    fn states_of_discovered_definitions() {
        let found = |pin: &str| Discovered { name: "t".into(), definition: "{}".into(), pin: pin.into() };
        let cases = [
            (None, "a", true, PinState::Approved),
            (None, "a", false, PinState::Pending),
            (Some(known("a", PinState::Approved, Some("a"))), "a", false, PinState::Approved),
            (Some(known("a", PinState::Approved, Some("a"))), "b", false, PinState::Changed),
            (Some(known("a", PinState::Approved, Some("a"))), "b", true, PinState::Approved),
            (Some(known("b", PinState::Changed, Some("a"))), "a", false, PinState::Approved),
            (Some(known("a", PinState::Pending, None)), "b", false, PinState::Pending),
            (Some(known("a", PinState::Blocked, Some("a"))), "a", true, PinState::Blocked),
        ];
        for (at, (known, pin, take, expected)) in cases.into_iter().enumerate() {
            assert_eq!(next_state(known.as_ref(), &found(pin), take), expected, "case {at}");
        }
    }

    #[test]
    fn what_was_approved_takes_its_place_as_long_as_it_is_kept() {
        let found =
            |bytes: usize| Discovered { name: "t".into(), definition: "x".repeat(bytes), pin: "q".into() };
        for (auto_approve, bytes, room, fits) in
            [(false, 10, 99, false), (false, 10, 100, true), (false, 101, 100, false), (true, 10, 10, true)]
        {
            let known = [Known { approved_bytes: 100, ..known("p", PinState::Approved, Some("p")) }];
            let server = server(auto_approve);
            let listing = [found(bytes)];
            let mut plan = Plan::make(&server, &known, &listing);
            plan.fit(&known, &listing, Room { tools: 1, bytes: room });
            assert_eq!(!plan.write.is_empty(), fits, "{auto_approve} {bytes} {room}");
        }
    }

    #[test]
    fn what_is_there_has_its_place_before_what_is_new() {
        let named = |name: &str, removed| Known {
            name: name.into(),
            removed,
            ..known("p", PinState::Approved, None)
        };
        let found = |name: &str, pin: &str, bytes: usize| Discovered {
            name: name.into(),
            definition: "x".repeat(bytes),
            pin: pin.into(),
        };
        let known = [named("same", false), named("grown", false), named("gone", true)];
        let server = server(true);
        let listing =
            [found("new", "n", 10), found("gone", "p", 10), found("grown", "q", 50), found("same", "p", 10)];
        for (tools, bytes, writes, removes, left_out) in [
            (4, 80, vec!["grown", "new", "gone"], vec![], vec![]),
            (3, 80, vec!["grown", "new"], vec![], vec![("gone", "tools")]),
            (4, 60, vec!["grown"], vec![], vec![("new", "definition_bytes"), ("gone", "definition_bytes")]),
            (4, 59, vec!["new", "gone"], vec!["grown"], vec![("grown", "definition_bytes")]),
            (0, 0, vec![], vec!["grown"], vec![("grown", "tools"), ("new", "tools"), ("gone", "tools")]),
        ] {
            let mut plan = Plan::make(&server, &known, &listing);
            plan.fit(&known, &listing, Room { tools, bytes });
            let written: Vec<&str> = plan.write.iter().map(|(tool, _)| tool.name.as_str()).collect();
            assert_eq!((written, plan.remove, plan.left_out), (writes, removes, left_out), "{tools} {bytes}");
        }
    }
}
