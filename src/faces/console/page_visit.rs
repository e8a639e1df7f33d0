//! Visits of people who are logged in: the request for a page or an act, and the answer.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Redirect, Response};
use bytes::Bytes;
use chrono::{DateTime, Utc};
use http::request::Parts;
use http::{StatusCode, header};
use parking_lot::Mutex;
use url::form_urlencoded;

use super::gate::{Visit, to_login};
use super::nav::{Nav, Section};
use super::{HOME, page, record};
use crate::domain::consent::MayNotDecide;
use crate::domain::id::TenantId;
use crate::domain::json;
use crate::domain::reason::Language;
use crate::domain::tenant::{Action, Role};
use crate::domain::web_session::CookieSecret;
use crate::faces::Faces;
use crate::faces::body::hold_answer;
use crate::faces::query::params::ParamNames;
use crate::faces::query::{clip, unknown};
use crate::faces::sse::{OpenStream, StreamKind};
use crate::gateway::{
    Attempt, Caller, Gateway, GatewayError, MemoryHold, MemoryPurpose, ReadAttempt, overloaded,
};

/// Longest wait of a page for memory, before it is made.
const MEMORY_WAIT_MAX: Duration = Duration::from_secs(5);

/// Read of a page.
pub(super) type PageRead<'a> = Pin<Box<dyn Future<Output = Result<Response, GatewayError>> + Send + 'a>>;

/// Request of a visitor who is logged in.
pub(super) struct PageVisit {
    faces: Arc<Faces>,
    visit: Arc<Visit>,
    attempt: Attempt,
    path: String,
    query: String,
    /// Origin of the page whose form was sent; empty without a form.
    origin: String,
    /// Number of permission requests that wait; `None` if the visitor sees none, or they could not be counted.
    waiting: Option<i64>,
    /// Memory taken for the page before it is made; `None` if none was taken.
    memory: Arc<Mutex<Option<MemoryHold>>>,
}

impl FromRequestParts<Arc<Faces>> for PageVisit {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, faces: &Arc<Faces>) -> Result<PageVisit, Response> {
        let visit = parts.extensions.get::<Arc<Visit>>().cloned().ok_or_else(to_login)?;
        let session = visit.session.as_ref().ok_or_else(to_login)?;
        let attempt = record::attempt(&visit, &session.caller);
        let origin = parts.headers.get(header::ORIGIN);
        let waiting = faces.gateway.consent.count_waiting(&attempt.caller).await.ok();
        Ok(PageVisit {
            faces: Arc::clone(faces),
            attempt,
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            origin: origin.and_then(|origin| origin.to_str().ok()).unwrap_or_default().to_owned(),
            visit,
            waiting,
            memory: Arc::default(),
        })
    }
}

#[derive(Template)]
#[template(path = "failure.html", config = "src/faces/console/askama.toml")]
struct FailurePage<'a> {
    nav: Nav,
    /// Path and name of the section, where the link leads elsewhere.
    section: Option<(&'static str, &'static str)>,
    title: &'a str,
    text: &'a str,
    href: &'a str,
    link: &'a str,
    request_id: Option<&'a str>,
}

impl PageVisit {
    /// Returns the state shared by all handlers.
    pub(super) fn faces(&self) -> &Arc<Faces> {
        &self.faces
    }

    /// Returns the services of the gateway.
    pub(super) fn gateway(&self) -> &Arc<Gateway> {
        &self.faces.gateway
    }

    /// Returns the number of streams that a tenant's keys hold open on this replica.
    pub(super) fn streams_of(&self, tenant: TenantId) -> usize {
        self.faces.streams.of_tenant(tenant)
    }

    /// Takes a slot for a stream of the visitor.
    ///
    /// # Errors
    /// [`GatewayError::Busy`] where the key or its tenant has too many open.
    pub(super) fn open_stream(&self, kind: StreamKind) -> Result<OpenStream, GatewayError> {
        let opened = OpenStream::begin(&self.faces, self.caller(), kind);
        opened.map_err(|too_many| GatewayError::Busy(too_many.text()))
    }

    /// Returns the visitor as a caller.
    pub(super) fn caller(&self) -> &Arc<Caller> {
        &self.attempt.caller
    }

    /// Returns the attempt to record.
    pub(super) fn attempt(&self) -> &Attempt {
        &self.attempt
    }

    /// Returns the attempt to record of what needs this action. What is about tenants is recorded for the platform, whichever
    /// tenant the visitor acts in: the log of one must not name another.
    pub(super) fn attempt_for(&self, needs: Action) -> Attempt {
        let mut attempt = self.attempt.clone();
        if needs == Action::ManageTenants && attempt.caller.role == Role::Platform {
            attempt.caller = Arc::new(self.gateway().tenants.platform());
        }
        attempt
    }

    /// Returns the time of the request.
    pub(super) fn now(&self) -> DateTime<Utc> {
        self.attempt.started_at
    }

    /// Returns the language of reasons for the visitor.
    pub(super) fn language(&self) -> Language {
        self.attempt.language()
    }

    /// Returns the path of the request, as received.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Returns the URL of the gateway as the visitor's clients reach it: the public one or, without one, the origin of
    /// the page whose form was sent.
    pub(super) fn base_url(&self) -> &str {
        let public = self.gateway().options.logins.public_url.as_ref();
        public.map_or(&self.origin, |public| public.as_str())
    }

    /// Returns a field of the form; empty if the form does not have it.
    pub(super) fn field(&self, name: &str) -> &str {
        self.visit.form.field(name)
    }

    /// Returns the secret of the session's cookie; `None` without one.
    pub(super) fn secret(&self) -> Option<&CookieSecret> {
        self.visit.secret.as_ref()
    }

    /// Returns the head of a page.
    pub(super) fn nav(&self, here: Section) -> Nav {
        Nav::of(self.caller(), self.visit.form_token(), here, self.waiting)
    }

    /// Returns the parameters of the query, each of them one of `names`. Those that a form sent empty are left out.
    ///
    /// # Errors
    /// [`GatewayError::Invalid`] for an unknown parameter.
    pub(super) fn given(&self, names: ParamNames) -> Result<Vec<(&'static str, String)>, GatewayError> {
        let mut given = Vec::new();
        for (name, value) in form_urlencoded::parse(self.query.as_bytes()) {
            if value.is_empty() {
                continue;
            }
            let known = names.iter().find(|known| **known == name);
            let known = known.ok_or_else(|| unknown("query parameter", &clip(&name), names))?;
            given.push((*known, value.into_owned()));
        }
        Ok(given)
    }

    /// Refuses the bootstrap key, which is in no tenant, on pages of a tenant.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] says what to do.
    pub(super) fn needs_tenant(&self) -> Result<(), GatewayError> {
        if self.caller().tenant_id() == TenantId::PLATFORM {
            let text = "The platform operator is in no tenant: choose one at Tenants.";
            return Err(GatewayError::Forbidden(text.to_owned()));
        }
        Ok(())
    }

    /// Returns whether the visitor may do what needs an action: the role allows it, and there is a tenant to do it in.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] says what is missing.
    pub(super) fn allowed(&self, attempt: &Attempt, needs: Action) -> Result<(), GatewayError> {
        attempt.caller.authorise(needs)?;
        if needs == Action::ManageTenants { Ok(()) } else { self.needs_tenant() }
    }

    /// Takes memory for a page of about this size, before anything is loaded for it.
    ///
    /// # Errors
    /// `overloaded` where answers of the key, its tenant or the replica hold as much as they may.
    pub(super) async fn expect(&self, bytes: usize) -> Result<(), GatewayError> {
        self.expecting(bytes).await
    }

    /// Gives back the memory that was taken for the page.
    pub(super) fn release(&self) {
        *self.memory.lock() = None;
    }

    /// Takes memory as [`PageVisit::expect`] does, as a part of an act that outlives the request.
    pub(super) fn expecting(
        &self,
        bytes: usize,
    ) -> impl Future<Output = Result<(), GatewayError>> + Send + use<> {
        let memory = self.gateway().tenants.memory(self.caller(), MemoryPurpose::Answer);
        let (mut hold, taken) = (memory.waiting(MEMORY_WAIT_MAX), Arc::clone(&self.memory));
        async move {
            let short = |_| GatewayError::Refused(Box::new(overloaded(MemoryPurpose::Answer)));
            hold.grow(bytes).await.map_err(short)?;
            *taken.lock() = Some(hold);
            Ok(())
        }
    }

    /// Returns a page, which holds memory until it has been written.
    ///
    /// # Errors
    /// `overloaded` if there is no memory for it, [`GatewayError::Unavailable`] if it cannot be written.
    pub(super) async fn show(
        &self,
        status: StatusCode,
        page: &(impl Template + Sync),
    ) -> Result<Response, GatewayError> {
        let text = page.render().map_err(|error| {
            tracing::error!(%error, "a page of the console could not be written");
            GatewayError::Unavailable
        })?;
        let memory = self.memory.lock().take();
        let held = hold_answer(self.gateway(), self.caller(), memory, Bytes::from(text)).await;
        let held = held.map_err(|_| GatewayError::Refused(Box::new(overloaded(MemoryPurpose::Answer))))?;
        let content_type = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
        Ok((status, content_type, Body::from(held)).into_response())
    }

    /// Returns the page of a read, or why there is none. A read that the role forbids is recorded as `what`, the name
    /// of the REST route.
    pub(super) fn answer_read(
        &self,
        (what, server): (&'static str, Option<&str>),
        here: Section,
        page: Result<Response, GatewayError>,
    ) -> Response {
        page.unwrap_or_else(|error| {
            if matches!(error, GatewayError::Forbidden(_)) {
                let asked = self.asked();
                let read = ReadAttempt { what, server, asked: &asked };
                self.gateway().log.record_refused_read(&self.attempt, &read, &error);
            }
            self.failed(here, &error)
        })
    }

    /// Returns the page of a sensitive read, or why there is none. Each is recorded as `what`, the name of the REST
    /// route, however it ends. The read outlives its connection, so that it has an end to record.
    pub(super) async fn answer_sensitive(
        self,
        what: &'static str,
        here: Section,
        read: impl for<'a> FnOnce(&'a PageVisit) -> PageRead<'a> + Send + 'static,
    ) -> Response {
        self.answer_sensitive_of((what, None), here, read).await
    }

    /// Returns the page of a sensitive read about a server, as [`PageVisit::answer_sensitive`] does.
    pub(super) async fn answer_sensitive_of(
        self,
        (what, server): (&'static str, Option<String>),
        here: Section,
        read: impl for<'a> FnOnce(&'a PageVisit) -> PageRead<'a> + Send + 'static,
    ) -> Response {
        let gateway = Arc::clone(self.gateway());
        gateway.log.outlive(async move { self.recorded((what, server.as_deref()), here, read).await }).await
    }

    async fn recorded(
        &self,
        (what, server): (&'static str, Option<&str>),
        here: Section,
        read: impl for<'a> FnOnce(&'a PageVisit) -> PageRead<'a>,
    ) -> Response {
        let asked = self.asked();
        let begun = ReadAttempt { what, server, asked: &asked };
        let log = &self.gateway().log;
        let attempt = match here {
            Section::Tenants => self.attempt_for(Action::ManageTenants),
            _ => self.attempt.clone(),
        };
        let reading = match log.begin_read(&attempt, &begun).await {
            Ok(reading) => reading,
            Err(error) => return self.failed(here, &error),
        };
        let page = read(self).await;
        log.end_read(&attempt, reading, page.as_ref().map(|_| ()));
        page.unwrap_or_else(|error| self.failed(here, &error))
    }

    /// Leads the visitor on after an act, or says why it was not done.
    pub(super) fn answer_act(&self, here: Section, to: &str, done: Result<(), GatewayError>) -> Response {
        match done {
            Ok(()) => Redirect::to(to).into_response(),
            Err(error) => self.failed(here, &error),
        }
    }

    /// Returns the page for a failure.
    pub(super) fn failed(&self, here: Section, error: &GatewayError) -> Response {
        self.failed_with(here, error, &plain(error))
    }

    /// Returns the page for a failure that another text tells of.
    pub(super) fn failed_with(&self, here: Section, error: &GatewayError, text: &str) -> Response {
        let link = match here.is_open_to(self.caller()) {
            true => (here.href(), here.name()),
            false => (HOME, "The first page"),
        };
        self.failed_at(here, error, text, link)
    }

    /// Returns the page for a failure of an act, with a link to the page of what the act was about: its path and its words.
    pub(super) fn failed_about(&self, here: Section, error: &GatewayError, link: (&str, &str)) -> Response {
        match here.is_open_to(self.caller()) {
            true => self.failed_at(here, error, &plain(error), link),
            false => self.failed(here, error),
        }
    }

    /// Returns the page for a failure that another text tells of, with a link: its path and its words.
    pub(super) fn failed_at(
        &self,
        here: Section,
        error: &GatewayError,
        text: &str,
        (href, link): (&str, &str),
    ) -> Response {
        let (status, title) = status_of(error);
        let request_id = self.visit.request_id();
        let nav = self.nav(here);
        let section = Some((here.href(), here.name()));
        let section = section.filter(|(own, _)| *own != href && here.is_open_to(self.caller()));
        page::render(status, &FailurePage { nav, section, title, text, href, link, request_id })
    }

    /// Returns path and query as JSON, for the record of a read.
    fn asked(&self) -> String {
        let mut out = String::from(r#"{"path":"#);
        json::escape_into(&mut out, &self.path);
        if !self.query.is_empty() {
            out.push_str(r#","query":"#);
            json::escape_into(&mut out, &self.query);
        }
        out.push('}');
        out
    }
}

/// Returns a failure in words for a person. What the API says of keys and roles is said of the visitor.
fn plain(error: &GatewayError) -> String {
    let text = error.to_string();
    match error {
        GatewayError::MayNotDecide(MayNotDecide::NotApprover) => {
            "Your role may not decide permission requests. It takes the role approver or admin.".to_owned()
        }
        GatewayError::Forbidden(_) => of_role(&text).unwrap_or(text),
        _ => text,
    }
}

/// Returns the text about a role that may not do something; `None` for another text.
fn of_role(text: &str) -> Option<String> {
    let (role, may) =
        text.strip_prefix("a key of role ")?.split_once(" may not do this; it takes one of ")?;
    let may: Vec<&str> = may.split(", ").filter(|role| *role != Role::Platform.as_str()).collect();
    let takes = match may.as_slice() {
        [] => "Only the platform operator may.".to_owned(),
        [one] => format!("It takes the role {one}."),
        [others @ .., last] => format!("It takes the role {} or {last}.", others.join(", ")),
    };
    Some(format!("Your role, {role}, may not do this. {takes} Ask somebody who has it."))
}

/// Returns status and title of the page for a failure.
pub(super) fn status_of(error: &GatewayError) -> (StatusCode, &'static str) {
    match error {
        GatewayError::NotFound(_) => (StatusCode::NOT_FOUND, "Not found"),
        GatewayError::Forbidden(_) | GatewayError::MayNotDecide(_) => (StatusCode::FORBIDDEN, "Not allowed"),
        GatewayError::Invalid { .. } => (StatusCode::BAD_REQUEST, "Request not understood"),
        GatewayError::Conflict(_) => (StatusCode::CONFLICT, "Not done"),
        GatewayError::Limit(_) => (StatusCode::TOO_MANY_REQUESTS, "Limit reached"),
        GatewayError::Busy(_) | GatewayError::Unavailable | GatewayError::Refused(_) => {
            (StatusCode::SERVICE_UNAVAILABLE, "Not available now")
        }
    }
}
