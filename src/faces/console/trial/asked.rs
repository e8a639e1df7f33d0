//! Permission request of a call that a person tries: what has become of it, for a page that follows it.

use url::form_urlencoded::Serializer;
use uuid::Uuid;

use crate::domain::consent::ConsentState;
use crate::domain::policy::Assurance;
use crate::domain::refusal::Refusal;
use crate::faces::console::moment::Moment;
use crate::faces::console::nav::Section;
use crate::faces::console::page_visit::PageVisit;
use crate::faces::console::permissions;
use crate::faces::console::text::LongText;
use crate::gateway::{ConsentView, GatewayError};

/// Permission request of the call.
pub(super) struct AskedShown {
    /// State in words, with the person who decided.
    pub(super) word: String,
    /// Class by which the words stand out.
    pub(super) tone: &'static str,
    /// Consequence, and what to do.
    pub(super) says: String,
    /// Arguments of the call as its request has them, masked; `None` where the form has them.
    pub(super) arguments: Option<LongText>,
    /// Comment of the person who decided; `None` without one.
    pub(super) comment: Option<String>,
    /// Link to the request.
    pub(super) href: String,
    /// Link to the records about the request.
    pub(super) records: String,
    /// Path of the page that follows the request.
    pub(super) place: String,
    /// Seconds until the request expires, at least 1; `None` once it does not wait any more.
    pub(super) left_s: Option<i64>,
}

impl AskedShown {
    /// Loads the request that a call was refused about. `None` without one, and if it cannot be read now.
    pub(super) async fn of(visit: &PageVisit, tool: &str, refusal: &Refusal) -> Option<AskedShown> {
        let view = visit.gateway().consent.get(visit.caller(), refusal.consent_id?).await.ok()?;
        Some(AskedShown::shown(visit, tool, &view))
    }

    /// Loads the request that an address names.
    ///
    /// # Errors
    /// [`GatewayError::NotFound`] for a request that the visitor may not see, or one about another tool; error of the use case.
    pub(super) async fn named(visit: &PageVisit, tool: &str, id: &str) -> Result<AskedShown, GatewayError> {
        let not_found = GatewayError::NotFound("permission request");
        let Ok(id) = Uuid::try_parse(id) else { return Err(not_found) };
        let view = visit.gateway().consent.get(visit.caller(), id).await?;
        if format!("{}:{}", view.row.server, view.row.tool) != tool {
            return Err(not_found);
        }
        let arguments = Some(LongText::of(&view.row.arguments));
        Ok(AskedShown { arguments, ..AskedShown::shown(visit, tool, &view) })
    }

    fn shown(visit: &PageVisit, tool: &str, view: &ConsentView) -> AskedShown {
        let row = &view.row;
        let state = row.state.known();
        let until = Moment::new(row.expires_at, visit.now()).exact();
        let meaning = view.meaning(|at| Moment::new(at, visit.now()).exact());
        let decision = permissions::verdict(view);
        let (word, tone, says) = match state {
            Some(ConsentState::Pending) => {
                let is_own = view.key() == visit.caller().key;
                let who = match view.assurance {
                    Assurance::Client if is_own => "whoever has another key with role approver or admin",
                    Assurance::Client => "an approver or admin",
                    Assurance::Approver => "another person with role approver or admin",
                };
                (
                    "waits for a person",
                    "open",
                    format!("Until {until}, {who} may allow it on the page Permissions."),
                )
            }
            Some(ConsentState::Granted) => (
                "allowed",
                "good",
                format!("Send the form again, with the same arguments, to run it: {meaning}."),
            ),
            Some(ConsentState::TimedOut) => ("expired", "held", sentence(&meaning)),
            Some(ConsentState::Denied) => ("denied", "held", sentence(&meaning)),
            Some(ConsentState::Succeeded) => ("done", "good", sentence(&meaning)),
            _ => (row.state.as_str(), "held", sentence(&meaning)),
        };
        let mut query = Serializer::new(String::new());
        query.append_pair("tool", tool).append_pair("asked", &row.id.to_string());
        let left = (row.expires_at - visit.now()).num_seconds().max(0) + 1;
        AskedShown {
            word: match decision {
                Some(decision) if state == Some(ConsentState::Granted) => decision,
                Some(decision) if state == Some(ConsentState::Denied) => decision,
                Some(decision) => format!("{}, {decision}", word.replace('_', " ")),
                None => word.replace('_', " "),
            },
            tone,
            says,
            arguments: None,
            comment: row.comment.clone(),
            href: permissions::href_of(row.id),
            records: format!("{}?consent_id={}#records", Section::Activity.href(), row.id),
            place: format!("{}?{}", Section::Try.href(), query.finish()),
            left_s: (state == Some(ConsentState::Pending)).then_some(left),
        }
    }
}

/// Returns a clause as a sentence.
fn sentence(clause: &str) -> String {
    let mut chars = clause.chars();
    let first: String = chars.next().into_iter().flat_map(char::to_uppercase).collect();
    format!("{first}{}.", chars.as_str())
}
