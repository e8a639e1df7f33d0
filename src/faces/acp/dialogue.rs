//! Dialogue with one client: sessions, what it has been asked, and its answers. No IO: messages go in, messages and acts
//! come out.
//!
//! What was asked is known to the connection alone, and bounded. Any other replica asks anew once the client is there.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use uuid::Uuid;

use super::wire::{
    self, AcpError, AcpImplementation, AcpMessage, CallStatus, InitializeParams, SessionParams,
};
use crate::domain::consent::ConsentDecision;
use crate::domain::reason::Language;
use crate::gateway::ConsentView;

/// Most requests that a client is asked about, or told of, at the same time. Further ones follow as these end.
pub(super) const REQUESTS_MAX: usize = 100;
/// Most sessions that one connection opens.
const SESSIONS_MAX: u32 = 64;
/// Answers that were not offered, after which a request is not put to this client again.
const MISSES_MAX: u8 = 2;
/// Beginning of the ids of sessions.
const SESSION_PREFIX: &str = "cs_";

/// Act that follows from a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AcpAct {
    /// The client's name is known.
    Greeted(Option<(String, Option<String>)>),
    /// Open requests are to be read, and put to the client.
    Look,
    /// The person has decided.
    Decide(Uuid, ConsentDecision),
    /// The person has ended the turn.
    EndTurn,
}

/// Messages to send, in order, and acts.
#[derive(Debug, Default)]
pub(super) struct Turn {
    pub(super) messages: Vec<String>,
    pub(super) acts: Vec<AcpAct>,
}

/// Request that the client was asked about.
struct Asked {
    view: ConsentView,
    /// Id of the open request for permission; `None` once it was answered.
    call: Option<String>,
    /// Number of answers that were not offered.
    misses: u8,
    told: CallStatus,
}

/// State of the dialogue.
pub(super) struct Dialogue {
    language: Language,
    is_greeted: bool,
    session: Option<String>,
    sessions: u32,
    asked: HashMap<Uuid, Asked>,
    serial: u64,
}

impl Dialogue {
    pub(super) fn new(language: Language) -> Dialogue {
        Dialogue { language, is_greeted: false, session: None, sessions: 0, asked: HashMap::new(), serial: 0 }
    }

    /// Returns whether the client has opened a session, so that it can be asked.
    pub(super) fn is_open(&self) -> bool {
        self.session.is_some()
    }

    /// Returns the requests that the client knows to be under way.
    pub(super) fn known(&self) -> impl Iterator<Item = Uuid> {
        self.asked.keys().copied()
    }

    /// Takes a message of the client.
    pub(super) fn hear(&mut self, text: &str) -> Turn {
        let mut turn = Turn::default();
        match wire::read(text) {
            Err((error, id)) => turn.messages.push(wire::error(id, &error)),
            Ok(AcpMessage::Response { id, result }) => self.answered(&id, result, &mut turn),
            Ok(AcpMessage::Notification { method }) if method == "session/cancel" => self.stop(&mut turn),
            Ok(AcpMessage::Notification { .. }) => {}
            Ok(AcpMessage::Request { id, method, params }) => {
                let outcome = match method.as_str() {
                    "initialize" => wire::params(params).map(|params| self.greet(params, &mut turn)),
                    "authenticate" => {
                        Err(AcpError::params("the API key was checked when the connection was made"))
                    }
                    "session/new" | "session/load" | "session/prompt" if !self.is_greeted => {
                        Err(AcpError::invalid("send initialize first"))
                    }
                    "session/new" => self
                        .open(format!("{SESSION_PREFIX}{}", Uuid::now_v7().simple()))
                        .map(|session| serde_json::json!({ "sessionId": session })),
                    "session/load" => session_of(params)
                        .and_then(|session| self.open(session))
                        .map(|_| serde_json::json!({})),
                    "session/prompt" => session_of(params).map(|session| {
                        turn.messages.push(wire::chunk(&session, &self.pending()));
                        serde_json::json!({ "stopReason": "end_turn" })
                    }),
                    other => Err(AcpError::unknown(other)),
                };
                turn.messages.push(match &outcome {
                    Ok(result) => wire::result(id, result.clone()),
                    Err(error) => wire::error(Some(id), error),
                });
                if outcome.is_ok() && matches!(method.as_str(), "session/new" | "session/load") {
                    // those that an earlier session was asked about are asked here instead
                    self.withdraw(&mut turn);
                    turn.acts.push(AcpAct::Look);
                }
            }
        }
        turn
    }

    /// Takes the present state of a request. `is_put`: this client may be asked about it.
    pub(super) fn see(&mut self, view: ConsentView, is_put: bool) -> Vec<String> {
        let Some(session) = self.session.clone() else { return Vec::new() };
        let mut messages = Vec::new();
        let (id, status) = (view.row.id, CallStatus::of(view.row.state.known()));
        let room = self.asked.len() < REQUESTS_MAX;
        match self.asked.entry(id) {
            Entry::Vacant(_) if status != CallStatus::Pending || !is_put || !room => {}
            Entry::Vacant(vacant) => {
                messages.push(wire::announced(&session, &view, self.language));
                let asked = vacant.insert(Asked { view, call: None, misses: 0, told: CallStatus::Pending });
                messages.push(ask(&mut self.serial, &session, asked, self.language));
            }
            Entry::Occupied(_) if status == CallStatus::Pending => {}
            Entry::Occupied(mut known) => {
                let asked = known.get_mut();
                // somebody else was first, or its time is over
                messages.extend(asked.call.take().map(|call| wire::cancel_request(&call)));
                if asked.told != status {
                    asked.told = status;
                    messages.push(wire::moved(&session, &view, status, None));
                }
                if status.is_final() {
                    known.remove();
                }
            }
        }
        messages
    }

    /// Notes that a decision could not be taken. `is_fault`: by a fault of the client, as an answer that was not offered;
    /// otherwise the request is put to it anew with the next look.
    pub(super) fn not_decided(&mut self, id: Uuid, is_fault: bool) -> Vec<String> {
        if is_fault {
            return self.missed(id);
        }
        self.asked.remove(&id);
        Vec::new()
    }

    fn greet(&mut self, params: InitializeParams, turn: &mut Turn) -> serde_json::Value {
        self.is_greeted = true;
        let client = params.client_info.map(|AcpImplementation { name, version }| (name, version));
        turn.acts.push(AcpAct::Greeted(client));
        wire::initialized()
    }

    fn open(&mut self, session: String) -> Result<String, AcpError> {
        if self.sessions >= SESSIONS_MAX {
            return Err(AcpError::invalid("this connection has opened too many sessions; connect again"));
        }
        self.sessions += 1;
        self.session = Some(session.clone());
        Ok(session)
    }

    /// Takes back what the client was asked.
    fn withdraw(&mut self, turn: &mut Turn) {
        let open = self.asked.drain().filter_map(|(_, asked)| asked.call);
        turn.messages.extend(open.map(|call| wire::cancel_request(&call)));
    }

    /// Ends the turn: all that is open on this connection, and what the own key has begun.
    fn stop(&mut self, turn: &mut Turn) {
        if !self.is_open() {
            return;
        }
        for (id, asked) in &mut self.asked {
            // the client answers them as cancelled, which then says nothing new
            if asked.call.take().is_some() && asked.view.options.contains(&ConsentDecision::CancelTurn) {
                turn.acts.push(AcpAct::Decide(*id, ConsentDecision::CancelTurn));
            }
        }
        turn.acts.push(AcpAct::EndTurn);
    }

    fn answered(&mut self, call: &str, result: Option<&serde_json::value::RawValue>, turn: &mut Turn) {
        let is_it = |asked: &&mut Asked| asked.call.as_deref() == Some(call);
        // an answer to what is not open any more: a second one, or a late one
        let Some(asked) = self.asked.values_mut().find(is_it) else { return };
        asked.call = None;
        let id = asked.view.row.id;
        match wire::decision(result, &asked.view) {
            Some(decision) => turn.acts.push(AcpAct::Decide(id, decision)),
            None => turn.messages.extend(self.missed(id)),
        }
    }

    /// Asks once more after an answer that was not offered; after another one, this client is left alone with the request.
    fn missed(&mut self, id: Uuid) -> Vec<String> {
        let (Some(session), Some(asked)) = (&self.session, self.asked.get_mut(&id)) else {
            return Vec::new();
        };
        asked.misses += 1;
        if asked.misses < MISSES_MAX {
            return vec![ask(&mut self.serial, session, asked, self.language)];
        }
        tracing::warn!(consent = %id, code = "consent_malformed", "an ACP client gave answers that were not offered");
        let text = "consent_malformed: the answers were none that were offered; somebody else has to decide";
        vec![wire::moved(session, &asked.view, CallStatus::Pending, Some(text))]
    }

    /// Returns the open requests in words.
    fn pending(&self) -> String {
        let open = self.asked.values().filter(|asked| asked.told == CallStatus::Pending);
        let mut open: Vec<&ConsentView> = open.map(|asked| &asked.view).collect();
        if open.is_empty() {
            return self.language.nothing_waits().to_owned();
        }
        open.sort_by_key(|view| view.row.id);
        let line = |view: &ConsentView| {
            let until = wire::time(view.row.expires_at);
            format!("- {} {}\n", view.told(self.language), self.language.request(view.row.id, &until))
        };
        open.into_iter().map(line).collect()
    }
}

/// Returns the session that parameters name.
fn session_of(params: Option<&serde_json::value::RawValue>) -> Result<String, AcpError> {
    let SessionParams { session_id } = wire::params(params)?;
    let is_ours = session_id.strip_prefix(SESSION_PREFIX).is_some_and(|id| Uuid::try_parse(id).is_ok());
    is_ours.then_some(session_id).ok_or_else(|| AcpError::params("sessionId is none of this gateway's"))
}

/// Returns the request for permission, with an id that no other has.
fn ask(serial: &mut u64, session: &str, asked: &mut Asked, language: Language) -> String {
    *serial += 1;
    let call = format!("{}.{serial}", asked.view.row.id);
    let text = wire::request_permission(session, &call, &asked.view, language);
    asked.call = Some(call);
    text
}
