//! Lua scripts, known to Redis by their hash. A server that lost them is sent the text again with the same call.

use std::sync::LazyLock;

use ::redis::{Cmd, Script, ToRedisArgs, cmd};

pub(super) struct Lua {
    code: &'static str,
    hash: LazyLock<String>,
}

macro_rules! lua {
    ($name:ident, $file:literal) => {
        pub(super) static $name: Lua = Lua {
            code: include_str!($file),
            hash: LazyLock::new(|| Script::new(include_str!($file)).get_hash().to_owned()),
        };
    };
}

lua!(TAKE_SEQ, "take_seq.lua");
lua!(RAISE_SEQ, "raise_seq.lua");
lua!(RETURN_SEQS, "return_seqs.lua");
lua!(REGISTER, "register.lua");
lua!(REFRESH, "refresh.lua");
lua!(UNREGISTER, "unregister.lua");
lua!(WATCH, "watch.lua");
lua!(WATCHED, "watched.lua");
lua!(WATCHER, "watcher.lua");
lua!(INBOX_BEGIN, "inbox_begin.lua");
lua!(INBOX_FILL, "inbox_fill.lua");
lua!(INBOX_TOUCH, "inbox_touch.lua");
lua!(INBOX_REMOVE, "inbox_remove.lua");
lua!(INBOX_SCORE, "inbox_score.lua");
lua!(INBOX_PAGE, "inbox_page.lua");
lua!(BLOCK_CHANGING, "block_changing.lua");
lua!(BLOCK_CHANGED, "block_changed.lua");
lua!(ANNOUNCE, "announce.lua");
lua!(TAKE_TOKENS, "take_tokens.lua");

/// One call of a script: its keys, all with one hash tag, and its arguments.
pub(super) struct Call {
    keys: Vec<String>,
    args: Vec<Vec<u8>>,
}

impl Call {
    pub fn on(keys: impl Into<Vec<String>>) -> Self {
        Call { keys: keys.into(), args: Vec::new() }
    }

    pub fn arg(mut self, arg: impl ToRedisArgs) -> Self {
        arg.write_redis_args(&mut self.args);
        self
    }

    /// By its hash, as usual.
    pub fn by_hash(&self, lua: &Lua) -> Cmd {
        self.command("EVALSHA", &lua.hash)
    }

    /// With its text, for a server that does not know it. It is known there from then on.
    pub fn by_text(&self, lua: &Lua) -> Cmd {
        self.command("EVAL", lua.code)
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = cmd(name);
        command.arg(script).arg(self.keys.len()).arg(&self.keys).arg(&self.args);
        command
    }
}
