//! Dialogue with one client: sessions, what it has been asked, and its answers. No IO: messages go in, messages and acts
//! come out.
//!
//! What was asked is known to the connection alone, and bounded. Any other replica asks anew once the client is there.

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use uuid::Uuid;

use super::wire::{
    self, AcpError, AcpImplementation, AcpMessage, CallStatus, InitializeParams, SessionParams,
};
use crate::domain::consent::ConsentDecision;
use crate::domain::reason::Language;
use crate::gateway::ConsentView;

/// Most requests that a client is asked about at the same time. Further ones follow as these are decided.
pub(super) const REQUESTS_MAX: usize = 100;
/// Most requests that a client is asked about, or told of, at the same time. Beyond it, the end of the oldest one that was
/// decided is not told.
const TOLD_MAX: usize = 2 * REQUESTS_MAX;
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
pub(super) struct Reaction {
    pub(super) messages: Vec<String>,
    pub(super) acts: Vec<AcpAct>,
}

/// Request that the client was asked about.
struct Asked {
    view: Arc<ConsentView>,
    /// Id of the open request for permission; `None` once it was answered.
    call: Option<String>,
    /// Number of answers that were not offered.
    misses: u8,
    /// True if the client is asked about it no more.
    is_left: bool,
    /// True if an answer could not count, so that the client may be asked once more.
    is_refused: bool,
    told: CallStatus,
}

/// State of the dialogue.
pub(super) struct Dialogue {
    language: Language,
    is_greeted: bool,
    session: Option<String>,
    sessions: u32,
    asked: HashMap<Uuid, Asked>,
    /// True if a request was not put for lack of room.
    is_short: bool,
    serial: u64,
}

impl Dialogue {
    pub(super) fn new(language: Language) -> Dialogue {
        Dialogue {
            language,
            is_greeted: false,
            session: None,
            sessions: 0,
            asked: HashMap::new(),
            is_short: false,
            serial: 0,
        }
    }

    /// Returns whether the client has opened a session, so that it can be asked.
    pub(super) fn is_open(&self) -> bool {
        self.session.is_some()
    }

    /// Returns the requests that the client knows to be under way.
    pub(super) fn known(&self) -> impl Iterator<Item = Uuid> {
        self.asked.keys().copied()
    }

    /// Returns whether the client can be asked about one more request.
    pub(super) fn has_room(&self) -> bool {
        let is_waiting = |asked: &&Asked| asked.told == CallStatus::Pending && !asked.is_left;
        let is_full = || self.asked.len() >= TOLD_MAX && self.oldest_decided().is_none();
        self.asked.values().filter(is_waiting).count() < REQUESTS_MAX && !is_full()
    }

    /// Returns once whether there is room again for requests that had none.
    pub(super) fn wants_more(&mut self) -> bool {
        let wants = self.is_short && self.has_room();
        self.is_short &= !wants;
        wants
    }

    fn oldest_decided(&self) -> Option<Uuid> {
        let decided = self.asked.iter().filter(|(_, asked)| asked.told != CallStatus::Pending);
        decided.map(|(id, _)| *id).min()
    }

    /// Takes a message of the client.
    pub(super) fn hear(&mut self, text: &str) -> Reaction {
        let mut reaction = Reaction::default();
        match wire::read(text) {
            Err((error, id)) => reaction.messages.push(wire::error(id, &error)),
            Ok(AcpMessage::Response { id, result }) => self.answered(&id, result, &mut reaction),
            Ok(AcpMessage::Notification { method }) if method == "session/cancel" => self.stop(&mut reaction),
            Ok(AcpMessage::Notification { .. }) => {}
            Ok(AcpMessage::Request { id, method, params }) => {
                let sessions = self.sessions;
                let answer = self.answer(&method, params, &mut reaction);
                reaction.messages.push(match answer {
                    Ok(result) => wire::result(id, &result),
                    Err(error) => wire::error(Some(id), &error),
                });
                if self.sessions > sessions {
                    // what an earlier session was asked about is asked here instead
                    self.withdraw(&mut reaction);
                    reaction.acts.push(AcpAct::Look);
                }
            }
        }
        reaction
    }

    fn answer(
        &mut self,
        method: &str,
        params: Option<&RawValue>,
        reaction: &mut Reaction,
    ) -> Result<Value, AcpError> {
        match method {
            "initialize" => Ok(self.greet(wire::params(params)?, reaction)),
            "authenticate" => Err(AcpError::params("the API key was checked when the connection was made")),
            "session/new" | "session/load" | "session/prompt" if !self.is_greeted => {
                Err(AcpError::invalid("send initialize first"))
            }
            "session/new" => {
                let session = format!("{SESSION_PREFIX}{}", Uuid::now_v7().simple());
                self.open(session.clone())?;
                Ok(json!({ "sessionId": session }))
            }
            "session/load" => {
                self.open(session_of(params)?)?;
                Ok(json!({}))
            }
            "session/prompt" => {
                reaction.messages.push(wire::chunk(&session_of(params)?, &self.pending()));
                Ok(json!({ "stopReason": "end_turn" }))
            }
            other => Err(AcpError::unknown(other)),
        }
    }

    /// Takes the present state of a request. `is_put`: this client may be asked about it.
    pub(super) fn see(&mut self, view: &Arc<ConsentView>, is_put: bool) -> Vec<String> {
        let Some(session) = self.session.clone() else { return Vec::new() };
        let mut messages = Vec::new();
        let (id, status) = (view.row.id, CallStatus::of(view.row.state.known()));
        if !self.asked.contains_key(&id) {
            if status != CallStatus::Pending || !is_put {
                return messages;
            }
            if !self.has_room() {
                self.is_short = true;
                return messages;
            }
            if self.asked.len() >= TOLD_MAX {
                self.oldest_decided().and_then(|id| self.asked.remove(&id));
            }
        }
        match self.asked.entry(id) {
            Entry::Vacant(vacant) => {
                messages.push(wire::announced(&session, view, self.language));
                let asked = vacant.insert(Asked {
                    view: Arc::clone(view),
                    call: None,
                    misses: 0,
                    is_left: false,
                    is_refused: false,
                    told: CallStatus::Pending,
                });
                messages.push(ask(&mut self.serial, &session, asked, self.language));
            }
            Entry::Occupied(mut known) if status == CallStatus::Pending => {
                let asked = known.get_mut();
                if is_put && std::mem::take(&mut asked.is_refused) {
                    messages.push(ask(&mut self.serial, &session, asked, self.language));
                }
            }
            Entry::Occupied(mut known) => {
                let asked = known.get_mut();
                // somebody else was first, or its time is over
                messages.extend(asked.call.take().map(|call| wire::cancel_request(&call)));
                if asked.told != status {
                    asked.told = status;
                    messages.push(wire::moved(&session, view, status, None));
                }
                if status.is_final() {
                    known.remove();
                }
            }
        }
        messages
    }

    /// Forgets a request whose decision could not be stored: it is put anew once it is seen again.
    pub(super) fn forget(&mut self, id: Uuid) {
        self.asked.remove(&id);
    }

    /// Tells why an answer could not count, though it was offered. The client is asked once more when the request is seen
    /// again, if it may be asked then.
    pub(super) fn refused(&mut self, id: Uuid, why: &str) -> Vec<String> {
        let (Some(session), Some(asked)) = (&self.session, self.asked.get_mut(&id)) else {
            return Vec::new();
        };
        asked.is_refused = true;
        vec![wire::moved(session, &asked.view, CallStatus::Pending, Some(why))]
    }

    fn greet(&mut self, params: InitializeParams, reaction: &mut Reaction) -> Value {
        self.is_greeted = true;
        let client = params.client_info.map(|AcpImplementation { name, version }| (name, version));
        reaction.acts.push(AcpAct::Greeted(client));
        wire::initialized()
    }

    fn open(&mut self, session: String) -> Result<(), AcpError> {
        if self.sessions >= SESSIONS_MAX {
            return Err(AcpError::invalid("this connection has opened too many sessions; connect again"));
        }
        self.sessions += 1;
        self.session = Some(session);
        Ok(())
    }

    /// Takes back what the client was asked.
    fn withdraw(&mut self, reaction: &mut Reaction) {
        let open = self.asked.drain().filter_map(|(_, asked)| asked.call);
        reaction.messages.extend(open.map(|call| wire::cancel_request(&call)));
    }

    /// Ends the turn: all that is open on this connection, and what the own key has begun.
    fn stop(&mut self, reaction: &mut Reaction) {
        if !self.is_open() {
            return;
        }
        for (id, asked) in &mut self.asked {
            // the client answers them as cancelled, which then says nothing new
            if asked.call.take().is_some() && asked.view.options.contains(&ConsentDecision::CancelTurn) {
                reaction.acts.push(AcpAct::Decide(*id, ConsentDecision::CancelTurn));
            }
        }
        reaction.acts.push(AcpAct::EndTurn);
    }

    fn answered(&mut self, call: &str, result: Option<&RawValue>, reaction: &mut Reaction) {
        let is_it = |asked: &&mut Asked| asked.call.as_deref() == Some(call);
        // an answer to what is not open any more: a second one, or a late one
        let Some(asked) = self.asked.values_mut().find(is_it) else { return };
        asked.call = None;
        let id = asked.view.row.id;
        let Some(result) = result else {
            let text = "the client answered with an error; somebody else has to decide";
            reaction.messages.extend(self.leave(id, text));
            return;
        };
        match wire::decision(result, &asked.view) {
            Some(decision) => reaction.acts.push(AcpAct::Decide(id, decision)),
            None => reaction.messages.extend(self.missed(id)),
        }
    }

    /// Asks once more after an answer that was not offered; after another one, this client is left alone with the request.
    pub(super) fn missed(&mut self, id: Uuid) -> Vec<String> {
        let (Some(session), Some(asked)) = (&self.session, self.asked.get_mut(&id)) else {
            return Vec::new();
        };
        asked.misses += 1;
        if asked.misses < MISSES_MAX {
            return vec![ask(&mut self.serial, session, asked, self.language)];
        }
        tracing::debug!(consent = %id, code = "consent_malformed", "an ACP client gave answers that were not offered");
        self.leave(
            id,
            "consent_malformed: the answers were none that were offered; somebody else has to decide",
        )
    }

    /// Leaves the client alone with a request, and says why. How it goes on is told all the same.
    fn leave(&mut self, id: Uuid, text: &str) -> Vec<String> {
        let (Some(session), Some(asked)) = (&self.session, self.asked.get_mut(&id)) else {
            return Vec::new();
        };
        asked.is_left = true;
        vec![wire::moved(session, &asked.view, CallStatus::Pending, Some(text))]
    }

    /// Returns the open requests in words.
    fn pending(&self) -> String {
        let open = self.asked.values().filter(|asked| asked.told == CallStatus::Pending);
        let mut open: Vec<&ConsentView> = open.map(|asked| &*asked.view).collect();
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
fn session_of(params: Option<&RawValue>) -> Result<String, AcpError> {
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
