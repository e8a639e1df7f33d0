//! Tools of the gateway's own: a server lists them, and the gateway answers their calls itself. They pass the same checks and have
//! the same records as all tools; only what answers is another.

mod draft;
mod inspect;

use std::sync::Arc;

use super::Calls;
use crate::domain::refusal::Refusal;
use crate::domain::web_page::facts::{PageFacts, PageToolKind};
use crate::gateway::catalog::Tool;
use crate::gateway::log::Attempt;
use crate::upstream::Answer;

/// Task of a tool that the gateway answers itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnTool {
    /// Shows the ledgers of the caller's own calls.
    InspectProvenance,
    /// Changes a draft of a form.
    SetInDraft,
}

/// Call of a tool that the gateway answers itself.
#[derive(Clone, Copy)]
pub(super) struct OwnCall<'a> {
    pub(super) attempt: &'a Attempt,
    pub(super) tool: &'a Tool,
    /// The arguments object, as checked.
    pub(super) arguments: &'a [u8],
}

/// Way in which calls of a tool are answered.
#[derive(Clone, Copy, Debug)]
pub(super) enum ToolWay<'a> {
    /// The server answers, and gets the arguments as they are.
    Server,
    /// The gateway answers itself.
    Own(OwnTool),
    /// The call fills in a form of a page, and the server answers with what its site says.
    Form(&'a Arc<PageFacts>),
}

impl<'a> ToolWay<'a> {
    /// Returns the way of a tool.
    pub(super) fn of(tool: &'a Tool) -> ToolWay<'a> {
        let Some(page) = &tool.shape.page else { return ToolWay::Server };
        match page.kind {
            PageToolKind::InspectProvenance => ToolWay::Own(OwnTool::InspectProvenance),
            PageToolKind::SetData | PageToolKind::SetInteraction => ToolWay::Own(OwnTool::SetInDraft),
            PageToolKind::Form | PageToolKind::Invoke | PageToolKind::PageInvoke => ToolWay::Form(page),
        }
    }

    /// Returns whether a call may go on without a check of its arguments, because whoever answers checks them.
    pub(super) fn takes_unchecked(self) -> bool {
        matches!(self, ToolWay::Server)
    }
}

impl Calls {
    /// Answers a call, in the place of its server.
    pub(super) async fn answer_own(&self, own: OwnTool, call: OwnCall<'_>) -> Result<Answer, Refusal> {
        match own {
            OwnTool::InspectProvenance => Ok(self.inspect_provenance(call).await),
            OwnTool::SetInDraft => self.set_in_draft(call).await,
        }
    }
}
