//! Ledger of a call that fills in a form: its rows are committed before the form is sent, and its end is added afterwards. What
//! cannot be recorded is not sent.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use tokio::sync::mpsc;
use ulid::Ulid;
use uuid::Uuid;

use super::checks::Checked;
use super::checks::tool::FormCall;
use crate::domain::provenance::{
    LEDGER_ROWS_MAX, LedgerCall, LedgerChain, LedgerLayer, LedgerPage, LedgerPhase, LedgerRow, LedgerStep,
};
use crate::domain::refusal::{Code, Refusal};
use crate::gateway::calls::Calls;
use crate::gateway::calls::cookies::KeptCookies;
use crate::gateway::calls::drafts::DraftClaim;
use crate::gateway::clock;
use crate::gateway::log::Attempt;
use crate::store::StoreError;
use crate::upstream::{Answer, LedgerAsk, LedgerReply, PageCall, Request};

/// Asks on their way: a call has one.
const ASKS_MAX: usize = 1;

/// Writer of the ledger of one call.
pub(super) struct LedgerClerk<'a> {
    calls: &'a Calls,
    call: LedgerCall,
    /// Form that the call is about, for the row about its end.
    selector: String,
    /// Draft that the call sends; `None` if it sends none.
    draft: Option<DraftClaim>,
    /// Cookies of the caller; `None` if they end with the call.
    cookies: Option<KeptCookies>,
    asked: mpsc::Receiver<LedgerAsk>,
    /// True once the request has asked; it may ask once.
    has_asked: bool,
    /// Rows that are committed; `None` while there are none.
    chain: Option<LedgerChain>,
}

/// End of a call, as its ledger tells it.
pub(super) enum LedgerEnd<'a> {
    /// The site has answered, with this result.
    Result(&'a Bytes),
    /// No answer; true if the site may have seen the form.
    NoAnswer(bool),
    /// The form of the page is not the approved one; nothing was sent.
    Changed,
}

impl<'a> LedgerEnd<'a> {
    /// Returns the end of an exchange. `is_dispatched` is true if the site may have seen the form.
    pub(super) fn of(ended: &'a Result<Answer, Refusal>, is_dispatched: bool) -> LedgerEnd<'a> {
        match ended {
            Ok(Answer::Result(raw)) => LedgerEnd::Result(raw),
            Err(refusal) if refusal.code == Code::ToolChanged => LedgerEnd::Changed,
            Ok(Answer::Error { .. }) | Err(_) => LedgerEnd::NoAnswer(is_dispatched),
        }
    }
}

impl<'a> LedgerClerk<'a> {
    /// Creates the writer for a call that sends a form, and tells the request of it; `None` for any other call.
    pub(super) fn of(
        calls: &'a Calls,
        attempt: &Attempt,
        (checked, record, consent_id): (&Checked, Ulid, Option<Uuid>),
        request: &mut Request,
    ) -> Option<LedgerClerk<'a>> {
        let Checked::Tool(call) = checked else { return None };
        let FormCall { facts, values, draft, cookies } = call.form.as_deref()?;
        let (ledger, asked) = mpsc::channel(ASKS_MAX);
        request.page = Some(PageCall {
            facts: Arc::clone(facts),
            values: values.clone(),
            ledger,
            cookies: cookies.as_ref().map(|kept| Arc::clone(&kept.cookies)),
        });
        let client = &attempt.client;
        let orchestrator = client.name.as_ref().map(|name| match &client.version {
            Some(version) => format!("{name} {version}"),
            None => name.clone(),
        });
        let call = LedgerCall {
            tenant: attempt.caller.tenant_id(),
            record,
            principal: attempt.caller.key.map_or(Uuid::nil(), |key| key.0),
            server: call.tool.server.id,
            consent_id,
            orchestrator,
        };
        Some(LedgerClerk {
            calls,
            call,
            selector: facts.selector.clone(),
            draft: *draft,
            cookies: cookies.clone(),
            asked,
            has_asked: false,
            chain: None,
        })
    }

    /// Waits for the answer to the request, and writes its ledger meanwhile.
    pub(super) async fn until<T>(&mut self, answered: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            answer = answered => answer,
            never = self.serve() => match never {},
        }
    }

    async fn serve(&mut self) -> Infallible {
        while let Some(LedgerAsk { page, steps, reply }) = self.asked.recv().await {
            // dropping the reply refuses the ask
            let Some(answer) = self.write(page, &steps).await else { continue };
            if reply.send(answer).is_err() {
                tracing::debug!(record = %self.call.record, "a form is not sent: its call was given up");
            }
        }
        std::future::pending().await
    }

    /// Commits the rows of a call that is about to be sent, and uses its draft up. Returns `None` if they may not be committed, and for
    /// a second ask.
    async fn write(&mut self, page: LedgerPage, steps: &[LedgerStep]) -> Option<LedgerReply> {
        // the last row is for the end
        if std::mem::replace(&mut self.has_asked, true) || steps.is_empty() || steps.len() >= LEDGER_ROWS_MAX
        {
            return None;
        }
        let key = self.calls.options.consent_keys.first()?;
        let mut chain = LedgerChain::new(self.call.clone(), page, key);
        let now = clock::now();
        let rows: Vec<LedgerRow> =
            steps.iter().map(|step| chain.add(step, LedgerPhase::Recorded, now)).collect();
        let is_there = match self.draft {
            None => self.commit(&rows).await.then_some(true)?,
            Some(DraftClaim { place, version }) => {
                let store = &self.calls.store;
                let written = store.add_provenance_of_draft((place, version), self.call.record, &rows).await;
                written.map_err(|error| self.failed(&error)).ok()?
            }
        };
        if !is_there {
            return Some(LedgerReply::DraftGone);
        }
        self.chain = Some(chain);
        Some(LedgerReply::Committed)
    }

    /// Adds the end of a call, if anything was written before, and keeps the caller's cookies. A draft of a form that is not the
    /// approved one is dropped. Returns whether the call has a ledger.
    pub(super) async fn end(mut self, end: LedgerEnd<'_>) -> bool {
        let has_ledger = self.chain.is_some();
        self.add_end(end).await;
        if let Some(kept) = &self.cookies {
            self.calls.keep_cookies(kept).await;
        }
        has_ledger
    }

    async fn add_end(&mut self, end: LedgerEnd<'_>) {
        if let (LedgerEnd::Changed, Some(DraftClaim { place, version })) = (&end, self.draft) {
            self.calls.drop_draft(place, version).await;
        }
        let Some(mut chain) = self.chain.take() else { return };
        let (phase, explanation, value) = match end {
            LedgerEnd::Result(raw) => {
                let (class, status) = outcome(raw);
                (LedgerPhase::Committed, format!("the-site-answered-{class}"), status)
            }
            LedgerEnd::NoAnswer(true) => (LedgerPhase::Unknown, "no-answer-is-known".to_owned(), None),
            LedgerEnd::NoAnswer(false) | LedgerEnd::Changed => {
                (LedgerPhase::Recorded, "nothing-was-sent".to_owned(), None)
            }
        };
        let step = LedgerStep {
            layer: LedgerLayer::Outcome,
            selector: self.selector.clone(),
            explanation,
            original: None,
            value,
            sealed: None,
            is_secret: false,
        };
        let row = chain.add(&step, phase, clock::now());
        self.commit(&[row]).await;
    }

    async fn commit(&self, rows: &[LedgerRow]) -> bool {
        let written = self.calls.store.add_provenance(self.call.tenant, self.call.record, rows).await;
        written.map_err(|error| self.failed(&error)).is_ok()
    }

    fn failed(&self, error: &StoreError) {
        tracing::warn!(%error, record = %self.call.record, "the ledger of a call could not be written");
    }
}

/// Returns class and status of a result.
fn outcome(raw: &Bytes) -> (String, Option<String>) {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Whole {
        structured_content: Outcome,
    }
    #[derive(Deserialize)]
    struct Outcome {
        class: String,
        status: Option<u16>,
    }
    match serde_json::from_slice::<Whole>(raw) {
        Ok(Whole { structured_content: Outcome { class, status } }) => {
            (class.replace('_', "-"), status.map(|status| status.to_string()))
        }
        Err(_) => ("unknown".to_owned(), None),
    }
}
