//! `AsyncWrite` by a field, for streams that change only how bytes are read or counted.

/// Defines all required methods of `AsyncWrite` by calling those of a field.
macro_rules! forward_writes {
    ($to:ident) => {
        fn poll_write(
            self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
            bytes: &[u8],
        ) -> std::task::Poll<std::io::Result<usize>> {
            std::pin::Pin::new(&mut self.get_mut().$to).poll_write(cx, bytes)
        }

        $crate::base::forward::forward_ends!($to);
    };
}

/// Defines `poll_flush` and `poll_shutdown` of `AsyncWrite` by calling those of a field.
macro_rules! forward_ends {
    ($to:ident) => {
        fn poll_flush(
            self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            std::pin::Pin::new(&mut self.get_mut().$to).poll_flush(cx)
        }

        fn poll_shutdown(
            self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            std::pin::Pin::new(&mut self.get_mut().$to).poll_shutdown(cx)
        }
    };
}

pub(crate) use {forward_ends, forward_writes};
