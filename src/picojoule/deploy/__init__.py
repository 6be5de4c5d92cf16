"""What becomes of a trained network: conversion, an event-driven engine, files for chips and other tools.

`graph` is the front end that all of them share.
"""
