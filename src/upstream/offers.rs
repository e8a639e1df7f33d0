//! What an upstream declares that it has, and of what it announces changes.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::list_kind::ListKind;

/// How long a declaration is believed that no session binds: the server may be another one meanwhile.
const DECLARED_AGE_MAX: Duration = Duration::from_secs(5 * 60);

/// Something that a server may announce changes of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Announced {
    /// Its tools.
    Tools,
    /// Its prompts.
    Prompts,
    /// Its resources, and their templates.
    Resources,
}

impl Announced {
    const ALL: [Announced; 3] = [Announced::Tools, Announced::Prompts, Announced::Resources];

    /// Method of the notification that announces a change.
    pub(super) fn method(self) -> &'static str {
        match self {
            Announced::Tools => "notifications/tools/list_changed",
            Announced::Prompts => "notifications/prompts/list_changed",
            Announced::Resources => "notifications/resources/list_changed",
        }
    }

    /// `None` for any other method.
    pub(super) fn of_method(method: &str) -> Option<Announced> {
        Announced::ALL.into_iter().find(|what| what.method() == method)
    }
}

/// Whether a server has lists of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeclaredOffer {
    /// It declares none.
    #[default]
    None,
    /// It has them.
    Listed,
    /// It has them, and announces changes.
    Announced,
}

/// What a server declares in its handshake, or when it is asked in the modern era.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeclaredOffers {
    /// Tools. They are listed whatever is declared.
    pub tools: DeclaredOffer,
    /// Prompts.
    pub prompts: DeclaredOffer,
    /// Resources, and their templates.
    pub resources: DeclaredOffer,
    /// Whether it completes arguments of prompts and templates.
    pub completions: bool,
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
}

#[derive(Deserialize)]
struct Listed<'a> {
    #[serde(borrow, rename = "listChanged")]
    list_changed: Option<&'a RawValue>,
}

impl DeclaredOffers {
    /// What a result of `initialize` or `server/discover` declares. What is not of their form declares nothing.
    pub(super) fn of(result: &[u8]) -> Self {
        let hello = serde_json::from_slice::<Hello<'_>>(result).ok();
        let found = object(hello.and_then(|hello| hello.capabilities));
        let Some(found) = found.and_then(|found| serde_json::from_str::<Capabilities<'_>>(found).ok()) else {
            return Self::default();
        };
        Self {
            tools: DeclaredOffer::of(found.tools),
            prompts: DeclaredOffer::of(found.prompts),
            resources: DeclaredOffer::of(found.resources),
            completions: object(found.completions).is_some(),
        }
    }

    /// Whether changes of these are announced.
    pub fn announces(&self, what: Announced) -> bool {
        let offer = match what {
            Announced::Tools => self.tools,
            Announced::Prompts => self.prompts,
            Announced::Resources => self.resources,
        };
        offer == DeclaredOffer::Announced
    }

    /// Whether there are lists of this kind.
    pub fn has(&self, kind: ListKind) -> bool {
        let offer = match kind {
            ListKind::Tools => self.tools,
            ListKind::Prompts => self.prompts,
            ListKind::Resources | ListKind::Templates => self.resources,
        };
        offer != DeclaredOffer::None
    }

    /// Whether it says what it has, and that this is something else than tools.
    pub(super) fn is_without_tools(&self) -> bool {
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

/// A derived struct would take an array as a list of its fields.
fn object(raw: Option<&RawValue>) -> Option<&str> {
    raw.map(RawValue::get).filter(|text| text.starts_with('{'))
}

/// What an upstream declared last, where it was asked.
#[derive(Default)]
pub(super) struct Declared(Mutex<Option<(Instant, DeclaredOffers)>>);

impl Declared {
    /// What was answered to a question of then: it may have been true at no later time.
    pub(super) fn new(offers: DeclaredOffers, asked: Instant) -> Self {
        Self(Mutex::new(Some((asked, offers))))
    }

    /// The same, in the place of what was declared before, unless that was asked for later.
    pub(super) fn set(&self, offers: DeclaredOffers, asked: Instant) {
        let mut last = self.last_at();
        if last.is_none_or(|(at, _)| at <= asked) {
            *last = Some((asked, offers));
        }
    }

    /// What was declared before was still true then.
    pub(super) fn held(&self, then: Instant) {
        if let Some((at, _)) = self.last_at().as_mut() {
            *at = then.max(*at);
        }
    }

    /// However long ago it was.
    pub(super) fn last(&self) -> Option<DeclaredOffers> {
        self.last_at().map(|(_, offers)| offers)
    }

    /// Unless it was so long ago that it may not be true any more.
    pub(super) fn fresh(&self, now: Instant) -> Option<DeclaredOffers> {
        let last = *self.last_at();
        last.filter(|(at, _)| now.saturating_duration_since(*at) < DECLARED_AGE_MAX).map(|(_, offers)| offers)
    }

    /// If it was true then or later.
    pub(super) fn since(&self, then: Instant) -> Option<DeclaredOffers> {
        let last = *self.last_at();
        last.filter(|(at, _)| *at >= then).map(|(_, offers)| offers)
    }

    fn last_at(&self) -> MutexGuard<'_, Option<(Instant, DeclaredOffers)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes what was declared too old to be believed.
    #[cfg(test)]
    pub(super) fn grow_old(&self) {
        if let Some((at, _)) = self.last_at().as_mut() {
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
            tools,
            prompts,
            resources,
            completions,
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
                offers(none, announced, listed, false),
            ),
            (r#"{"resources":{"listChanged":true},"completions":{}}"#, offers(none, none, announced, true)),
            // one that is not of the form takes nothing from the others
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
        // what was asked for earlier, and answered later, is older
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
