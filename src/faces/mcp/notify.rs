//! Notifications of changed lists: when a stream gets one, and of which kinds.

use std::time::Duration;

use tokio::time::Instant;

use super::jsonrpc::notification;
use super::tools;
use crate::domain::fingerprint::{Fingerprint, Fingerprinting};
use crate::domain::operation::OperationType;
use crate::domain::settings::ToolNames;
use crate::faces::sse::{EVENT_END, EVENT_START};
use crate::gateway::Prints;

/// Debounce time after a notification. Changes within it are notified together at its end (behaviour, section 7).
const MERGE: Duration = Duration::from_millis(200);

/// Kinds of lists, as members of `subscriptions/listen` and as methods of notifications.
const TOPICS: [(&str, &str); KINDS] = [
    ("toolsListChanged", "notifications/tools/list_changed"),
    ("promptsListChanged", "notifications/prompts/list_changed"),
    ("resourcesListChanged", "notifications/resources/list_changed"),
];
const KINDS: usize = 3;

/// Fingerprints of the lists that a client would be served, one per kind. Equal fingerprints mean equal bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SeenNotices([Fingerprint; KINDS]);

impl SeenNotices {
    /// Combines the fingerprints of the servers' lists with the spelling and the gateway's own tools.
    pub(super) fn of(prints: Prints, names: ToolNames, manages: Option<OperationType>) -> SeenNotices {
        let spelling = match names {
            ToolNames::Colon => "colon",
            ToolNames::Safe => "safe",
        };
        let spelled = |prints: &[Fingerprint]| {
            let mut making = Fingerprinting::default();
            making.field(spelling);
            prints.iter().for_each(|print| making.print(*print));
            making.finish()
        };
        let tools = [prints.tools, tools::print_on_direct(manages)];
        // URIs have one spelling
        SeenNotices([spelled(&tools), spelled(&[prints.prompts]), prints.resources])
    }

    /// Returns the fingerprints as an event id. A client that resumes with it shows which lists it knows.
    pub(super) fn id(self) -> String {
        self.0.map(|print| print.to_string()).join(".")
    }

    /// Returns the kinds of lists that differ from those of an event id.
    fn other_than_id(self, id: &str) -> Topics {
        let mut parts = id.split('.');
        Topics(self.0.map(|print| parts.next() != Some(print.to_string().as_str())))
    }

    fn other_than(self, told: SeenNotices) -> Topics {
        let mut told = told.0.into_iter();
        Topics(self.0.map(|print| told.next() != Some(print)))
    }
}

/// Set of kinds of lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Topics([bool; KINDS]);

impl Topics {
    /// Set of all kinds.
    pub(super) const ALL: Topics = Topics([true; KINDS]);

    fn is_none(self) -> bool {
        self == Topics::default()
    }

    fn and(self, other: Topics) -> Topics {
        let mut other = other.0.into_iter();
        Topics(self.0.map(|is| other.next() == Some(true) && is))
    }

    /// Returns the union of two sets.
    pub(super) fn or(self, other: Topics) -> Topics {
        let mut other = other.0.into_iter();
        Topics(self.0.map(|is| other.next() == Some(true) || is))
    }

    /// Returns the members of `subscriptions/listen` that name the kinds.
    pub(super) fn members(self) -> impl Iterator<Item = &'static str> {
        TOPICS.into_iter().zip(self.0).filter(|(_, is)| *is).map(|((member, _), _)| member)
    }

    /// Returns the kind that a member of `subscriptions/listen` names; the empty set for any other member.
    pub(super) fn of_member(name: &str) -> Topics {
        Topics(TOPICS.map(|(member, _)| member == name))
    }

    fn methods(self) -> impl Iterator<Item = &'static str> {
        TOPICS.into_iter().zip(self.0).filter(|(_, is)| *is).map(|((_, method), _)| method)
    }
}

/// Notifications that one stream has got, wants, and is owed.
#[derive(Debug)]
pub(super) struct Told {
    seen: SeenNotices,
    /// Kinds that the client wants notifications of.
    wants: Topics,
    /// Kinds to notify even if the lists have not changed since the last notification.
    owed: Topics,
    last: Option<Instant>,
    opened: Instant,
}

/// Time of the next notification of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// No notification is due.
    Nothing,
    /// A notification is due then, if the lists still differ.
    At(Instant),
    /// A notification of these kinds is due now.
    Now(Topics),
}

impl Told {
    /// Creates the state of a client that knows these lists.
    pub(super) fn new(seen: SeenNotices, wants: Topics, opened: Instant) -> Told {
        Told { seen, wants, owed: Topics::default(), last: None, opened }
    }

    /// Adds as owed the kinds that have changed since the event that a resuming client names.
    pub(super) fn with_id(mut self, id: &str) -> Told {
        self.owed = self.seen.other_than_id(id);
        self
    }

    /// Notes that the client was served outdated lists of these kinds at `at`.
    ///
    /// They are owed if the last notification was earlier; before the first one, if `at` is earlier than the stream. In all
    /// other cases the client has been notified since, or will be when this replica learns of the change.
    pub(super) fn misled(&mut self, at: Instant, kinds: [bool; KINDS]) {
        if self.last.map_or(at < self.opened, |last| at >= last) {
            self.owed = self.owed.or(Topics(kinds));
        }
    }

    /// Notes that nothing was heard since `since`. All kinds are owed if the client was notified later: the lists that it
    /// read then may be out of date.
    pub(super) fn deaf(&mut self, since: Instant) {
        if self.last.is_some_and(|last| last >= since) {
            self.owed = Topics::ALL;
        }
    }

    /// Returns whether a wanted kind is owed.
    pub(super) fn is_owed(&self) -> bool {
        !self.owed.and(self.wants).is_none()
    }

    /// Returns the notification that is due if the client would be served `seen`. One that is due now counts as sent.
    pub(super) fn due(&mut self, seen: SeenNotices, now: Instant) -> Due {
        let news = seen.other_than(self.seen).or(self.owed).and(self.wants);
        if news.is_none() {
            return Due::Nothing;
        }
        match self.last.map(|last| last + MERGE) {
            Some(end) if end > now => Due::At(end),
            _ => {
                *self = Told { seen, owed: Topics::default(), last: Some(now), ..*self };
                Due::Now(news)
            }
        }
    }
}

/// Returns the events of a notification. Only the last one carries the id, which stands for all.
pub(super) fn events(topics: Topics, params: &str, id: Option<&str>) -> String {
    let mut out = String::new();
    let mut methods = topics.methods().peekable();
    while let Some(method) = methods.next() {
        if let Some(id) = id.filter(|_| methods.peek().is_none()) {
            out.push_str("id: ");
            out.push_str(id);
            out.push('\n');
        }
        out.push_str(EVENT_START);
        out.push_str(&notification(method, params));
        out.push_str(EVENT_END);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(text: &str) -> SeenNotices {
        let mut making = Fingerprinting::default();
        making.field(text);
        SeenNotices([making.finish(); KINDS])
    }

    const MS: Duration = Duration::from_millis(1);
    const NOW: Due = Due::Now(Topics::ALL);

    #[test]
    fn the_first_change_is_told_at_once_and_what_follows_together() {
        let (start, mut told) = (Instant::now(), Told::new(seen("a"), Topics::ALL, Instant::now()));
        assert_eq!(told.due(seen("a"), start), Due::Nothing);
        assert_eq!(told.due(seen("b"), start), NOW);
        for (list, after) in [("c", 1), ("d", 100), ("e", 199)] {
            assert_eq!(told.due(seen(list), start + after * MS), Due::At(start + MERGE), "{list}");
        }
        assert_eq!(told.due(seen("e"), start + MERGE), NOW);
        assert_eq!(told.due(seen("e"), start + 2 * MERGE), Due::Nothing);
        assert_eq!(told.due(seen("f"), start + 3 * MERGE), NOW, "at once again");
    }

    #[test]
    fn each_kind_is_told_by_itself() {
        let (mut now, start) = (seen("a"), Instant::now());
        let mut told = Told::new(
            now,
            Topics::of_member("promptsListChanged").or(Topics::of_member("toolsListChanged")),
            start,
        );
        now.0[2] = seen("b").0[2];
        assert_eq!(told.due(now, start), Due::Nothing, "nobody asked for resources");
        now.0[1] = seen("b").0[1];
        assert_eq!(told.due(now, start), Due::Now(Topics([false, true, false])));
        let text = events(Topics([true, false, true]), "{}", Some("x"));
        let expected = TOPICS.map(|(_, method)| text.matches(method).count());
        assert_eq!((expected, text.matches("id: x\n").count()), ([1, 0, 1], 1));
    }

    #[test]
    fn what_is_as_it_was_told_is_not_told() {
        let (start, mut told) = (Instant::now(), Told::new(seen("a"), Topics::ALL, Instant::now()));
        assert_eq!(told.due(seen("b"), start), NOW);
        assert_eq!(told.due(seen("c"), start + MS), Due::At(start + MERGE));
        assert_eq!(told.due(seen("b"), start + MERGE), Due::Nothing, "there and back");
        let mut deaf = Told::new(seen("a"), Topics::default(), Instant::now());
        assert_eq!(deaf.due(seen("b"), start), Due::Nothing, "not asked for");
    }

    #[test]
    fn whoever_was_misled_is_told_once_more() {
        let opened = Instant::now() + 10 * MERGE;
        let mut told = Told::new(seen("a"), Topics::ALL, opened);
        told.misled(opened + MS, [true; KINDS]);
        assert_eq!(told.due(seen("a"), opened + MS), Due::Nothing, "told when this replica has heard of it");
        told.misled(opened - MS, [true; KINDS]);
        assert_eq!(told.due(seen("a"), opened + MS), NOW, "it listed before it listened");
        let last = opened + MS;
        told.misled(last - MS, [true; KINDS]);
        assert_eq!(told.due(seen("a"), last + MERGE), Due::Nothing, "told since");
        told.misled(last + MS, [true; KINDS]);
        assert_eq!(told.due(seen("a"), last + MS), Due::At(last + MERGE));
        assert_eq!(told.due(seen("a"), last + MERGE), NOW);
        assert_eq!(told.due(seen("a"), last + 3 * MERGE), Due::Nothing);
    }

    #[test]
    fn who_was_told_while_nothing_was_heard_is_told_once_more() {
        let opened = Instant::now() + 10 * MERGE;
        let mut told = Told::new(seen("a"), Topics::ALL, opened);
        told.deaf(opened - MERGE);
        assert_eq!(told.due(seen("a"), opened), Due::Nothing, "told nothing");
        assert_eq!(told.due(seen("b"), opened), NOW);
        told.deaf(opened + MS);
        assert_eq!(told.due(seen("b"), opened + MERGE), Due::Nothing, "told before");
        told.deaf(opened - MS);
        assert_eq!(told.due(seen("b"), opened + MERGE), NOW);
    }

    #[test]
    fn who_comes_back_is_told_of_what_it_missed() {
        let now = Instant::now();
        let back =
            |id: &str| Told::new(seen("a"), Topics::ALL, Instant::now()).with_id(id).due(seen("a"), now);
        assert_eq!(back(&seen("a").id()), Due::Nothing);
        for other in [seen("b").id().as_str(), "", "7", "\u{0}"] {
            assert_eq!(back(other), NOW, "{other:?}");
        }
    }
}
