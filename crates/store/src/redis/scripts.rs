//! Lua scripts, called by their hash. A server that does not know one gets its text with the
//! repeated call.

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
pub(super) struct ScriptCall {
    keys: Vec<String>,
    args: Vec<Vec<u8>>,
}

impl ScriptCall {
    pub fn on(keys: impl Into<Vec<String>>) -> Self {
        ScriptCall { keys: keys.into(), args: Vec::new() }
    }

    pub fn arg(mut self, arg: impl ToRedisArgs) -> Self {
        arg.write_redis_args(&mut self.args);
        self
    }

    /// The usual call, by hash.
    pub fn by_hash(&self, lua: &Lua) -> Cmd {
        self.command("EVALSHA", &lua.hash)
    }

    /// The call with its text, after which the server knows the hash.
    pub fn by_text(&self, lua: &Lua) -> Cmd {
        self.command("EVAL", lua.code)
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = cmd(name);
        command.arg(script).arg(self.keys.len()).arg(&self.keys).arg(&self.args);
        command
    }
}
