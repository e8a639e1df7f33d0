//! Prompts, resources and completions of upstreams: as a call of a tool that reads, without arguments to check.

use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::checks::Pinned;
use super::round::{Asking, RoundRequest};
use super::sending::{About, Sending};
use super::{CallOutcome, Door, Refused, checks, from_upstream, record, round, status_of, withdrawn};
use crate::domain::activity::Record;
use crate::domain::json;
use crate::domain::offer::OfferKind;
use crate::domain::refusal::{Code, Refusal};
use crate::gateway::calls::Calls;
use crate::gateway::calls::cancel::{CancelBy, Named};
use crate::gateway::catalog::{Offer, Offers, ViewKey};
use crate::gateway::log::{Attempt, record_unavailable};
use crate::gateway::outlive::Outlive;
use crate::gateway::{Caller, clock, trace};
use crate::upstream::{self, Answer, Connection, Request, Sent, Subject, URI_BYTES_MAX, UpstreamError};

/// Longest name or URI that is repeated, in characters.
const NAME_SHOWN_CHARS_MAX: usize = 300;
/// What a server completes that completes nothing.
const NO_COMPLETION: &[u8] = br#"{"completion":{"values":[]}}"#;

/// What is asked for.
#[derive(Clone, Debug)]
pub enum Asked {
    /// A prompt, by either spelling of its name.
    Prompt(String),
    /// What is at a URI.
    Resource(String),
    /// Values for an argument of a prompt.
    PromptCompletion(String),
    /// Values for a variable of a template.
    TemplateCompletion(String),
}

impl Asked {
    fn name(&self) -> &str {
        match self {
            Self::Prompt(name)
            | Self::Resource(name)
            | Self::PromptCompletion(name)
            | Self::TemplateCompletion(name) => name,
        }
    }

    fn method(&self) -> &'static str {
        match self {
            Self::Prompt(_) => "prompts/get",
            Self::Resource(_) => "resources/read",
            Self::PromptCompletion(_) | Self::TemplateCompletion(_) => "completion/complete",
        }
    }

    /// What its server calls it.
    fn own_name<'a>(&'a self, offer: &'a Offer) -> &'a str {
        match self {
            Self::Prompt(_) => &offer.name,
            _ => self.name(),
        }
    }

    /// The same for the span of the request.
    fn about<'a>(&'a self, offer: &'a Offer) -> About<'a> {
        match self {
            Self::Prompt(_) | Self::PromptCompletion(_) => About::Prompt(&offer.name),
            Self::Resource(uri) => About::Resource(uri),
            Self::TemplateCompletion(_) => About::Other,
        }
    }

    fn is_completion(&self) -> bool {
        matches!(self, Self::PromptCompletion(_) | Self::TemplateCompletion(_))
    }

    fn find<'a>(&self, offers: &'a Offers) -> Option<&'a Arc<Offer>> {
        match self {
            Self::Prompt(name) | Self::PromptCompletion(name) => offers.prompt(name),
            Self::Resource(uri) => offers.route(uri),
            Self::TemplateCompletion(text) => offers.route_of_template(text),
        }
    }

    /// What a key is allowed or not.
    fn canonical(&self, offer: &Offer) -> String {
        match self {
            Self::Prompt(_) | Self::PromptCompletion(_) => offer.canonical.to_string(),
            Self::Resource(uri) | Self::TemplateCompletion(uri) => format!("{}:{uri}", offer.server.name),
        }
    }

    fn unknown(&self) -> Refusal {
        let shown: String = self.name().chars().take(NAME_SHOWN_CHARS_MAX).collect();
        let what = match self {
            Self::Prompt(_) | Self::PromptCompletion(_) => "Unknown prompt",
            Self::Resource(_) | Self::TemplateCompletion(_) => "Resource not found",
        };
        Refusal::new(Code::NotFound, format!("{what}: {shown}"))
    }
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct OfferRequest {
    /// What for.
    pub asked: Asked,
    /// Members of `params` that travel on, raw; the `ref` of a completion is made anew.
    pub members: Vec<(&'static str, Bytes)>,
    /// Members of `_meta` that travel on to the upstream.
    pub meta: Vec<(String, Bytes)>,
    /// Where progress goes, when the caller wants it: raw `params` of each notification.
    pub progress: Option<mpsc::Sender<Bytes>>,
    /// What it says about its rounds; completions have none.
    pub round: RoundRequest,
}

impl Calls {
    /// Asks an upstream for something else than a tool call. As with a call, the record is closed whether or not anybody
    /// waits; completions, one for each key that is pressed, have none.
    pub fn ask(
        self: &Arc<Self>,
        attempt: Attempt,
        request: OfferRequest,
        cancel_by: CancelBy<'_>,
    ) -> Outlive<CallOutcome> {
        let (calls, span) = (Arc::clone(self), attempt.span());
        let cancel = CancellationToken::new();
        let named = match cancel_by {
            CancelBy::Notification(id) => self.name_call(&attempt, id, cancel.clone()),
            _ => None,
        };
        let asked = calls.run_ask(attempt, request, cancel.clone().cancelled_owned(), named);
        let work = Outlive::new(&self.life.tasks, trace::within(span, asked));
        if cancel_by == CancelBy::Disconnect { work.telling(cancel) } else { work }
    }

    /// `_named`: while it runs, it can be taken back by its name.
    async fn run_ask(
        self: Arc<Self>,
        attempt: Attempt,
        request: OfferRequest,
        cancelled: impl Future<Output = ()> + Send,
        _named: Option<Named>,
    ) -> CallOutcome {
        let is_recorded = !request.asked.is_completion();
        let Ok(mut pending) = self.log.activity.begin_call(record::begin(&attempt, Door::Direct)).await
        else {
            return refused(record_unavailable());
        };
        let admitted = self.tenants.limits.admit(&attempt.caller, Instant::now());
        let is_over = admitted.is_err();
        let outcome = match check(&attempt.caller, &request, &mut pending.record, admitted) {
            Ok(offer) => self.send(&attempt, &offer, request, &mut pending.record, cancelled).await,
            Err(refusal) if self.is_shed(&attempt, &refusal, is_over && is_recorded) => {
                pending.forget();
                let tool =
                    Some(request.asked.name().to_owned()).filter(|_| refusal.code != Code::RateLimited);
                return CallOutcome::Refused(Refused {
                    tool,
                    ..Refused::before_checks(Door::Direct, refusal)
                });
            }
            Err(refusal) => {
                pending.record.status = status_of(refusal.code);
                record::error(&mut pending.record, &refusal);
                let tool = Some(request.asked.name().to_owned());
                CallOutcome::Refused(Refused { tool, ..Refused::before_checks(Door::Direct, refusal) })
            }
        };
        if is_recorded {
            pending.record.duration_ms = Some(clock::milliseconds(attempt.started.elapsed()));
            pending.close();
        } else {
            pending.forget();
        }
        outcome
    }

    async fn send(
        &self,
        attempt: &Attempt,
        offer: &Offer,
        mut request: OfferRequest,
        record: &mut Record,
        cancelled: impl Future<Output = ()> + Send,
    ) -> CallOutcome {
        let arguments = request.members.iter().find(|(name, _)| *name == "arguments");
        let arguments = arguments.map(|(_, raw)| raw.clone());
        if let Some(arguments) = &arguments {
            record::arguments(record, arguments, self.options.preview_bytes);
        }
        let method = request.asked.method();
        let subject = request.asked.own_name(offer).to_owned();
        let digest = || {
            let arguments = arguments.as_deref().map(|raw| std::str::from_utf8(raw).unwrap_or_default());
            round::digest_of(attempt, &offer.server, (method, &subject), arguments.unwrap_or_default())
        };
        let opened = self.open_round(attempt, std::mem::take(&mut request.round), digest);
        let Ok(mut opened) = opened else {
            round::note_invalid(record);
            return CallOutcome::InvalidState;
        };
        record.parent_id = opened.first;
        let target = &offer.server.target;
        let connection = self.upstreams.connection(target);
        let about = (method, request.asked.about(offer));
        let measures = self.upstreams.measures();
        let sending = Sending::begin(measures, attempt, &offer.server, record, about, &mut request.meta);
        let mut cancelled = pin!(cancelled);
        let mut request = to_send(offer, request, target.limits.call_timeout, Arc::clone(&sending.sent));
        request.round = std::mem::take(&mut opened.round);
        request.key = attempt.caller.key.map(|key| key.0);
        let ended = tokio::select! {
            biased;
            () = &mut cancelled => Err(withdrawn(&sending.sent)),
            ended = exchange(&connection, request) => ended.map_err(|error| from_upstream(&error)),
        };
        record.upstream_ms = Some(clock::milliseconds(sending.elapsed()));
        let asking = Asking { attempt, server: &offer.server, opened: &opened, record: record.id };
        let concluded = self.conclude(&asking, record, ended, digest).await;
        sending.ended(&concluded);
        concluded.unwrap_or_else(refused)
    }
}

/// Finds whom to ask, and whether that may be; notes it.
fn check(
    caller: &Caller,
    request: &OfferRequest,
    record: &mut Record,
    admitted: Result<(), Refusal>,
) -> Result<Arc<Offer>, Refusal> {
    let asked = &request.asked;
    record.tier = Some(Offer::TIER.as_str());
    record.operation_type = Some(Offer::TIER.operation());
    let shown: String = asked.name().chars().take(NAME_SHOWN_CHARS_MAX).collect();
    record::tool(record, None, &format!("{} {shown}", asked.method()));
    // no server has so long a one, and it would be held against every template
    if asked.name().len() > URI_BYTES_MAX {
        return Err(asked.unknown());
    }
    // templates cost more than a look into a map: not without a share of the rate
    if matches!(asked, Asked::Resource(_) | Asked::TemplateCompletion(_)) {
        admitted.clone()?;
    }
    let catalogue = caller.catalogue();
    let offer = catalogue.as_ref().and_then(|catalogue| asked.find(catalogue.offers()).cloned());
    let offer = offer.filter(|offer| ViewKey::of(&caller.settings).sees_offer(&asked.canonical(offer)));
    let offer = offer.ok_or_else(|| asked.unknown())?;
    let own = if matches!(asked, Asked::Prompt(_)) { &*offer.name } else { shown.as_str() };
    record::tool(record, Some(&offer.server.name), &format!("{} {own}", asked.method()));
    checks::open(&offer.server)?;
    checks::approved(offer.state, || pinned(&offer))?;
    admitted?;
    checks::reachable(&offer.server)?;
    Ok(offer)
}

/// Describes an offer that is not approved, for a refusal.
fn pinned(offer: &Offer) -> Pinned<'_> {
    let (what, name, list) = match offer.kind {
        OfferKind::Prompt => ("prompt", &offer.canonical, "prompts"),
        OfferKind::Resource => ("resource", &offer.name, "resources"),
        OfferKind::Template => ("template", &offer.name, "resources"),
    };
    Pinned { what, name: name.chars().take(NAME_SHOWN_CHARS_MAX).collect(), server: &offer.server.name, list }
}

/// Builds the request to the upstream, under the upstream's own name of the offer.
fn to_send(offer: &Offer, request: OfferRequest, timeout: std::time::Duration, sent: Arc<Sent>) -> Request {
    let OfferRequest { asked, mut members, meta, progress, .. } = request;
    let subject = match asked {
        Asked::Prompt(_) => Subject::Prompt(offer.name.to_string()),
        Asked::Resource(uri) => Subject::Resource(uri),
        Asked::PromptCompletion(_) => {
            if let Some((_, reference)) = members.iter_mut().find(|(name, _)| *name == "ref") {
                *reference = renamed(reference, &offer.name);
            }
            Subject::Completion
        }
        Asked::TemplateCompletion(_) => Subject::Completion,
    };
    let round = upstream::Round::default();
    Request { subject, members, meta, progress, round, key: None, timeout, sent }
}

/// A reference to a prompt, by this name.
fn renamed(reference: &Bytes, name: &str) -> Bytes {
    let text = std::str::from_utf8(reference).unwrap_or("{}");
    let mut quoted = String::new();
    json::escape_into(&mut quoted, name);
    json::with_member_first(&json::without_members(text, &["name"]), "name", &quoted).into()
}

/// Who completes nothing is not asked to.
async fn exchange(connection: &Connection, request: Request) -> Result<Answer, UpstreamError> {
    if request.subject == Subject::Completion && !connection.offers().await?.completions {
        return Ok(Answer::Result(Bytes::from_static(NO_COMPLETION)));
    }
    connection.ask(request).await
}

fn refused(refusal: Refusal) -> CallOutcome {
    CallOutcome::Refused(Refused::before_checks(Door::Direct, refusal))
}
