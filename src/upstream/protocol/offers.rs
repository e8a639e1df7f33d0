//! Declared capabilities of upstreams: the lists that they have, and the changes that they announce.

use std::time::Duration;

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::upstream::protocol::list_kind::ListKind;

/// Age at which a declaration is stale, unless it belongs to a session with an id: another server may answer by then.
const DECLARED_AGE_MAX: Duration = Duration::from_secs(5 * 60);

/// Kind of list whose changes a server may announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Announced {
    /// Tools.
    Tools,
    /// Prompts.
    Prompts,
    /// Resources and their templates.
    Resources,
}

impl Announced {
    const ALL: [Announced; 3] = [Announced::Tools, Announced::Prompts, Announced::Resources];

    /// Returns the method of the notification that announces a change.
    pub(in crate::upstream) fn method(self) -> &'static str {
        match self {
            Announced::Tools => "notifications/tools/list_changed",
            Announced::Prompts => "notifications/prompts/list_changed",
            Announced::Resources => "notifications/resources/list_changed",
        }
    }

    /// Returns the kind whose change the method announces; `None` for any other method.
    pub(in crate::upstream) fn of_method(method: &str) -> Option<Announced> {
        Announced::ALL.into_iter().find(|what| what.method() == method)
    }
}

/// Declaration of a server about one kind of list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeclaredOffer {
    /// The server declares no such list.
    #[default]
    None,
    /// The server has such a list.
    Listed,
    /// The server has such a list, and announces its changes.
    Announced,
}

/// Capabilities that a server declares in its handshake or in answer to `server/discover`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeclaredOffers {
    /// Tools, which are listed even if the server declares none.
    pub tools: DeclaredOffer,
    /// Prompts.
    pub prompts: DeclaredOffer,
    /// Resources and their templates.
    pub resources: DeclaredOffer,
    /// True if the server announces updates of single resources to those who subscribe to them.
    pub subscriptions: bool,
    /// Whether the server completes arguments of prompts and templates.
    pub completions: bool,
    /// True if the server sends log messages.
    pub logging: bool,
}

#[derive(Deserialize)]
struct Hello<'a> {
    #[serde(borrow)]
    capabilities: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Capabilities<'a> {
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
    #[serde(borrow)]
    prompts: Option<&'a RawValue>,
    #[serde(borrow)]
    resources: Option<&'a RawValue>,
    #[serde(borrow)]
    completions: Option<&'a RawValue>,
    #[serde(borrow)]
    logging: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Listed<'a> {
    #[serde(borrow, rename = "listChanged")]
    list_changed: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Subscribable<'a> {
    #[serde(borrow)]
    subscribe: Option<&'a RawValue>,
}

impl DeclaredOffers {
    /// Reads the declaration in a result of `initialize` or `server/discover`. Malformed parts declare nothing.
    pub(in crate::upstream) fn of(result: &[u8]) -> Self {
        let hello = serde_json::from_slice::<Hello<'_>>(result).ok();
        let found = object(hello.and_then(|hello| hello.capabilities));
        let Some(found) = found.and_then(|found| serde_json::from_str::<Capabilities<'_>>(found).ok()) else {
            return Self::default();
        };
        Self {
            tools: DeclaredOffer::of(found.tools),
            prompts: DeclaredOffer::of(found.prompts),
            resources: DeclaredOffer::of(found.resources),
            subscriptions: is_subscribable(found.resources),
            completions: object(found.completions).is_some(),
            logging: object(found.logging).is_some(),
        }
    }

    /// Returns whether the server announces changes of `what`.
    pub fn announces(&self, what: Announced) -> bool {
        let offer = match what {
            Announced::Tools => self.tools,
            Announced::Prompts => self.prompts,
            Announced::Resources => self.resources,
        };
        offer == DeclaredOffer::Announced
    }

    /// Returns whether the server has lists of this kind.
    pub fn has(&self, kind: ListKind) -> bool {
        let offer = match kind {
            ListKind::Tools => self.tools,
            ListKind::Prompts => self.prompts,
            ListKind::Resources | ListKind::Templates => self.resources,
        };
        offer != DeclaredOffer::None
    }

    /// Returns whether the server declares prompts or resources, and no tools.
    pub(in crate::upstream) fn is_without_tools(&self) -> bool {
        !self.has(ListKind::Tools) && (self.has(ListKind::Prompts) || self.has(ListKind::Resources))
    }
}

impl DeclaredOffer {
    fn of(declared: Option<&RawValue>) -> Self {
        let Some(declared) = object(declared) else { return Self::None };
        let announced = serde_json::from_str::<Listed<'_>>(declared)
            .is_ok_and(|listed| listed.list_changed.is_some_and(|changed| changed.get() == "true"));
        if announced { Self::Announced } else { Self::Listed }
    }
}

fn is_subscribable(resources: Option<&RawValue>) -> bool {
    object(resources).is_some_and(|declared| {
        serde_json::from_str::<Subscribable<'_>>(declared)
            .is_ok_and(|found| found.subscribe.is_some_and(|subscribe| subscribe.get() == "true"))
    })
}

/// Returns the raw text of an object, and `None` for other values: a derived struct also takes an array as its
/// fields.
fn object(raw: Option<&RawValue>) -> Option<&str> {
    raw.map(RawValue::get).filter(|text| text.starts_with('{'))
}

/// Last declaration of an upstream, with the time as of which it is known to be true. Empty if the upstream was not
/// asked.
#[derive(Default)]
pub(in crate::upstream) struct Declared(Mutex<Option<(Instant, DeclaredOffers)>>);

impl Declared {
    /// Creates the record of a declaration that was asked for at `asked`: it may have been true at no later time.
    pub(in crate::upstream) fn new(offers: DeclaredOffers, asked: Instant) -> Self {
        Self(Mutex::new(Some((asked, offers))))
    }

    /// Replaces the declaration, unless the current one was asked for later.
    pub(in crate::upstream) fn set(&self, offers: DeclaredOffers, asked: Instant) {
        let mut last = self.0.lock();
        if last.is_none_or(|(at, _)| at <= asked) {
            *last = Some((asked, offers));
        }
    }

    /// Records that the declaration was still true at `then`.
    pub(in crate::upstream) fn held(&self, then: Instant) {
        if let Some((at, _)) = self.0.lock().as_mut() {
            *at = then.max(*at);
        }
    }

    /// Returns the declaration, however long ago it was made.
    pub(in crate::upstream) fn last(&self) -> Option<DeclaredOffers> {
        self.0.lock().map(|(_, offers)| offers)
    }

    /// Returns the declaration, unless it is stale at `now`.
    pub(in crate::upstream) fn fresh(&self, now: Instant) -> Option<DeclaredOffers> {
        let last = *self.0.lock();
        last.filter(|(at, _)| now.saturating_duration_since(*at) < DECLARED_AGE_MAX).map(|(_, offers)| offers)
    }

    /// Returns the declaration, if it was true at `then` or later.
    pub(in crate::upstream) fn since(&self, then: Instant) -> Option<DeclaredOffers> {
        let last = *self.0.lock();
        last.filter(|(at, _)| *at >= then).map(|(_, offers)| offers)
    }

    /// Ages the declaration until it is stale.
    #[cfg(test)]
    pub(in crate::upstream) fn grow_old(&self) {
        if let Some((at, _)) = self.0.lock().as_mut() {
            *at -= DECLARED_AGE_MAX;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_declared() {
        let offers = |tools, prompts, resources, completions| DeclaredOffers {
            logging: false,
            tools,
            prompts,
            resources,
            completions,
            subscriptions: false,
        };
        let subscribable = DeclaredOffers {
            subscriptions: true,
            ..offers(DeclaredOffer::None, DeclaredOffer::Announced, DeclaredOffer::Listed, false)
        };
        let (none, listed, announced) =
            (DeclaredOffer::None, DeclaredOffer::Listed, DeclaredOffer::Announced);
        let nothing = DeclaredOffers::default();
        let table = [
            ("{}", nothing),
            (r#"{"tools":{}}"#, offers(listed, none, none, false)),
            (r#"{"tools":{"listChanged":true}}"#, offers(announced, none, none, false)),
            (
                r#"{"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":false},"x":1}"#,
                subscribable,
            ),
            (r#"{"resources":{"subscribe":"true"}}"#, offers(none, none, listed, false)),
            (r#"{"resources":{"listChanged":true},"completions":{}}"#, offers(none, none, announced, true)),
            // a malformed member takes nothing from the others
            (r#"{"tools":true,"prompts":{},"resources":null}"#, offers(none, listed, none, false)),
            (r#"{"tools":[true],"prompts":[],"completions":[]}"#, nothing),
            (r#"{"tools":{"listChanged":"true"}}"#, offers(listed, none, none, false)),
            (r#"{"tools":{"listChanged":true,"listChanged":true}}"#, offers(listed, none, none, false)),
            (r#"{"tools":{},"tools":{}}"#, nothing),
            (r#"[{"listChanged":true}]"#, nothing),
            ("null", nothing),
            ("7", nothing),
        ];
        for (capabilities, want) in table {
            let result = format!(r#"{{"protocolVersion":"x","capabilities":{capabilities}}}"#);
            assert_eq!(DeclaredOffers::of(result.as_bytes()), want, "{capabilities}");
        }
        for bad in ["{}", "", "[]", "nonsense", r#"{"capabilities":{},"capabilities":{}}"#] {
            assert_eq!(DeclaredOffers::of(bad.as_bytes()), nothing, "{bad}");
        }
    }

    #[test]
    fn who_has_no_tools_is_who_says_what_else_it_has() {
        let table = [
            ("{}", false),
            (r#"{"completions":{}}"#, false),
            (r#"{"prompts":{}}"#, true),
            (r#"{"resources":{}}"#, true),
            (r#"{"resources":{},"tools":{}}"#, false),
        ];
        for (capabilities, want) in table {
            let result = format!(r#"{{"capabilities":{capabilities}}}"#);
            assert_eq!(DeclaredOffers::of(result.as_bytes()).is_without_tools(), want, "{capabilities}");
        }
    }

    #[test]
    fn a_declaration_is_believed_for_a_while() {
        let (declared, now) = (Declared::default(), Instant::now());
        assert_eq!((declared.last(), declared.fresh(now)), (None, None));
        let offers = DeclaredOffers { completions: true, ..DeclaredOffers::default() };
        declared.set(offers, now);
        assert_eq!((declared.last(), declared.fresh(now)), (Some(offers), Some(offers)));
        let later = now + DECLARED_AGE_MAX;
        assert_eq!((declared.last(), declared.fresh(later)), (Some(offers), None));
        // a declaration that was asked for earlier, and answered later, is older
        declared.set(DeclaredOffers::default(), now - Duration::from_millis(1));
        assert_eq!(declared.last(), Some(offers));
    }

    #[test]
    fn a_declaration_holds_from_when_it_was_asked_for() {
        let (offers, now) =
            (DeclaredOffers { completions: true, ..DeclaredOffers::default() }, Instant::now());
        let (declared, later) = (Declared::new(offers, now), now + Duration::from_millis(1));
        assert_eq!((declared.since(now), declared.since(later)), (Some(offers), None));
        declared.held(later);
        assert_eq!((declared.since(later), Declared::default().since(now)), (Some(offers), None));
    }
}
