//! Form that a call sends. A tool may stand for several forms, or for a draft: what it means is read once, before anything is decided
//! about it, so that policy, person, ledger and site see the same values.

use std::sync::Arc;

use super::checks::tool::{CheckedTool, FormCall};
use super::facts::Facts;
use crate::domain::refusal::{Code, Refusal};
use crate::domain::web_page::draft::CalledForm;
use crate::domain::web_page::facts::PageToolKind;
use crate::gateway::calls::Calls;
use crate::gateway::calls::drafts::{self, DraftClaim};
use crate::gateway::calls::own::ToolWay;
use crate::gateway::tenants::Caller;

impl Calls {
    /// Reads which form a call sends. Where it sends a draft, the draft's values become part of its arguments.
    pub(super) async fn read_form(
        &self,
        caller: &Caller,
        call: &mut CheckedTool,
        facts: &mut Facts,
    ) -> Result<(), Refusal> {
        let ToolWay::Form(page) = ToolWay::of(&call.tool) else { return Ok(()) };
        let page = Arc::clone(page);
        let unknown = |unknown| drafts::invalid(&call.tool, &unknown);
        let mut form = match page.kind {
            PageToolKind::PageInvoke => {
                let CalledForm { facts, values } =
                    CalledForm::summarized(&page, &call.arguments).map_err(unknown)?;
                FormCall { facts, values: values.into(), draft: None, cookies: None }
            }
            PageToolKind::Invoke => {
                let called = CalledForm::invoked(&page, &call.arguments).map_err(unknown)?;
                // boxed: rare, it must not be part of every call's future
                Box::pin(self.read_draft(caller, call, facts, called)).await?
            }
            _ => FormCall { facts: page, values: call.arguments.clone(), draft: None, cookies: None },
        };
        // boxed as well
        form.cookies = Box::pin(self.kept_cookies(caller, &call.tool.server)).await?;
        call.form = Some(Box::new(form));
        Ok(())
    }

    async fn read_draft(
        &self,
        caller: &Caller,
        call: &mut CheckedTool,
        facts: &mut Facts,
        mut called: CalledForm,
    ) -> Result<FormCall, Refusal> {
        let place = drafts::place(caller, call.tool.server.id, &called.facts);
        let found = self.draft(place).await?;
        let selector = &called.facts.selector;
        let draft = found.and_then(|found| Some((found.version, found.draft?)));
        if let Some((version, draft)) = &draft
            && !draft.is_of(&called.facts)
        {
            self.drop_draft(place, *version).await;
            return Err(drafts::changed(selector));
        }
        // a form without fields is sent as it is
        if draft.is_none() && !called.facts.fields.is_empty() {
            let message = format!(
                "There is no draft of form '{selector}' to send: a draft ends 15 minutes after its last change, and when it is \
                 sent; set its fields first"
            );
            return Err(Refusal::new(Code::InvalidArguments, message));
        }
        let values = draft.as_ref().map(|(_, draft)| draft);
        call.arguments = called.with_draft(values, &call.arguments).into();
        facts.arguments = Some(call.arguments.clone());
        let draft = draft.map(|(version, _)| DraftClaim { place, version });
        Ok(FormCall { facts: called.facts, values: called.values.into(), draft, cookies: None })
    }
}
